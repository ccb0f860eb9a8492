#!lua flags=allow-oom
-- Records the wish to stop exactly this run; a queued one is fenced for its ending on the spot.
-- keys: run record
-- args: prefix, key, new execution id, by, reason ('' for none), cause, hold ms, ending, channel prefix of workers
-- result: {'requested', requested at} | {'fenced', execution id, ending} | {'ended', status} | {'unknown'}
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'ending', 'finished_at', 'worker')
if not r[1] then return {'unknown'} end
if r[4] then return {'ended', r[1]} end
local now = clock()
if redis.call('HSETNX', KEYS[1], 'cancel_requested_at', now) == 1 then
  redis.call('HSET', KEYS[1], 'cancel_by', ARGV[4], 'cancel_cause', ARGV[6])
  if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'cancel_reason', ARGV[5]) end
end
if r[1] == 'running' then
  redis.call('PUBLISH', ARGV[9] .. r[5], 'cancel ' .. key .. ' ' .. redis.call('HGET', KEYS[1], 'cancel_cause'))
  return {'requested', redis.call('HGET', KEYS[1], 'cancel_requested_at')}
end
if r[3] then return {'fenced', r[2], r[3]} end
redis.call('HSET', KEYS[1], 'execution', ARGV[3], 'ending', ARGV[8])
redis.call('ZREM', p .. 'ready', key)
redis.call('ZADD', p .. 'leases', now + ARGV[7], key)
return {'fenced', ARGV[3], ARGV[8]}
