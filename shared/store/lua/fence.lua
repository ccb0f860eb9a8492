#!lua flags=allow-oom
-- Takes a run away from its execution before it is ended from outside; an ender that dies leaves it to the sweep.
-- keys: run record
-- args: prefix, key, new execution id, hold ms, ending, guard, guard value, guard value 2
--       guard: late (lease ran out) | child (value: worker, value 2: pid) | queue (value: timeout ms; not while intake is paused)
--              | execution (value: execution id) | ending (it is fenced for this ending already) | any
-- result: {'fenced', execution id, ending, log length} | {'kept', status} | {'gone'}
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'ending', 'finished_at', 'worker', 'pid', 'ready_at')
if not r[1] then
  redis.call('ZREM', p .. 'leases', key)
  redis.call('ZREM', p .. 'ready', key)
  return {'gone'}
end
if r[4] then
  redis.call('ZREM', p .. 'leases', key)
  return {'kept', r[1]}
end
local now, guard = clock(), ARGV[6]
local function waited()
  local intake = redis.call('HMGET', p .. 'intake', 'paused', 'resumed_at')
  return not intake[1] and math.max(tonumber(r[7]), tonumber(intake[2] or 0)) <= now - ARGV[7]
end
local lease = redis.call('ZSCORE', p .. 'leases', key)
local fits = guard == 'any'
  or (guard == 'late' and lease and tonumber(lease) <= tonumber(now))
  or (guard == 'child' and r[1] == 'running' and not r[3] and r[5] == ARGV[7] and r[6] == ARGV[8])
  or (guard == 'queue' and r[1] == 'queued' and not r[3] and r[7] and waited())
  or (guard == 'ending' and r[3] == ARGV[5])
  or (guard == 'execution' and r[2] == ARGV[7])
if not fits then return {'kept', r[1]} end
redis.call('HSETNX', KEYS[1], 'ending', ARGV[5])
redis.call('HSET', KEYS[1], 'execution', ARGV[3])
redis.call('ZREM', p .. 'ready', key)
redis.call('ZADD', p .. 'leases', now + ARGV[4], key)
return {'fenced', ARGV[3], redis.call('HGET', KEYS[1], 'ending'), redis.call('LLEN', p .. 'log:' .. key)}
