#!lua flags=allow-oom
-- An operator's forced stop in one step: says who and why, takes the run from its execution, tells its worker.
-- keys: run record
-- args: prefix, key, new execution id, by, reason ('' for none), cause, grace ms ('' for at once), hold ms, ending,
--       channel prefix of workers, channel prefix of their main processes
-- result: {'fenced', execution id, ending} | {'grace', ms left} | {'ended', status} | {'unknown'}
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'finished_at', 'worker', 'pid', 'cancel_requested_at')
if not r[1] then return {'unknown'} end
if r[3] then return {'ended', r[1]} end
local now = clock()
if r[1] == 'running' and ARGV[7] ~= '' then
  local left = (r[6] or now) + ARGV[7] - now
  if not r[6] or left > 0 then return {'grace', string.format('%d', left)} end
end
if not r[6] then
  redis.call('HSET', KEYS[1], 'cancel_requested_at', now, 'cancel_by', ARGV[4], 'cancel_cause', ARGV[6])
  if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'cancel_reason', ARGV[5]) end
end
redis.call('HSETNX', KEYS[1], 'ending', ARGV[9])
redis.call('HSET', KEYS[1], 'execution', ARGV[3])
if r[1] == 'running' then
  redis.call('HSET', KEYS[1], 'terminated_at', now, 'terminated_by', ARGV[4])
  if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'terminate_reason', ARGV[5]) end
  local told = key .. ' ' .. r[2]
  redis.call('PUBLISH', ARGV[10] .. r[4], 'terminate ' .. told)
  redis.call('PUBLISH', ARGV[11] .. string.match(r[4], '[^:]*$'), 'child ' .. told .. ' ' .. r[4] .. ' ' .. r[5])
end
redis.call('ZREM', p .. 'ready', key)
redis.call('ZADD', p .. 'leases', now + ARGV[8], key)
return {'fenced', ARGV[3], redis.call('HGET', KEYS[1], 'ending')}
