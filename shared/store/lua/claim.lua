-- A worker takes a queued run whose turn has come; asking again with the same execution id answers the same.
-- keys: run record
-- args: prefix, key, execution id, allowed statuses, lease ms, deadline ms, worker, host, pid
-- result: {'claimed', now, deadline at, attempt, agent, actor, thread id, run id, input, log length}
--         | {'refused', status} | {'gone'}
local p, key = ARGV[1], ARGV[2]
local status, execution, ending = unpack(redis.call('HMGET', KEYS[1], 'status', 'execution', 'ending'))
if not status then return {'gone'} end
local now = clock()
local mine = status == 'running' and execution == ARGV[3]
if not mine then
  if ending or not among(ARGV[4], status) or not redis.call('ZSCORE', p .. 'ready', key) then
    return {'refused', status}
  end
  redis.call('HSET', KEYS[1], 'status', 'running', 'execution', ARGV[3], 'worker', ARGV[7], 'host', ARGV[8], 'pid', ARGV[9])
  redis.call('HSETNX', KEYS[1], 'started_at', now)
  redis.call('HSETNX', KEYS[1], 'deadline_at', string.format('%d', now + ARGV[6]))
  redis.call('HINCRBY', KEYS[1], 'attempt', 1)
  redis.call('ZREM', p .. 'ready', key)
end
redis.call('ZADD', p .. 'leases', now + ARGV[5], key)
local r = redis.call('HMGET', KEYS[1], 'deadline_at', 'attempt', 'agent', 'actor', 'thread_id', 'run_id')
local input = redis.call('GET', p .. 'input:' .. key)
return {'claimed', now, r[1], r[2], r[3], r[4], r[5], r[6], input or '', redis.call('LLEN', p .. 'log:' .. key)}
