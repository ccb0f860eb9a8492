#!lua flags=allow-oom
-- Says in a running run's record which call to a provider it is waiting for, or that it is over.
-- keys: run record
-- args: execution id, the call as JSON ('' for none)
-- result: 1 | 0 when the run is not running or not this execution's
local r = redis.call('HMGET', KEYS[1], 'status', 'execution')
if r[1] ~= 'running' or r[2] ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'calling')
else
  redis.call('HSET', KEYS[1], 'calling', ARGV[2])
end
return 1
