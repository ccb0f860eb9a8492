-- A worker takes a queued run whose turn has come; asking again with the same execution id answers the same.
-- keys: run record
-- args: prefix, key, execution id, allowed statuses, lease ms, deadline ms, worker, host, pid,
--       'again' when this execution says a claim again that a restarted server may have forgotten
-- result: {'claimed', now, deadline at, attempt, agent, actor, thread id, run id, input, log length}
--         | {'refused', status, 'paused' or 'held'} | {'gone'}
local p, key = ARGV[1], ARGV[2]
local status, execution, ending = unpack(redis.call('HMGET', KEYS[1], 'status', 'execution', 'ending'))
if not status then return {'gone'} end
local now = tonumber(clock())
local mine = status == 'running' and execution == ARGV[3]
if not mine then
  if ARGV[10] ~= 'again' and redis.call('HEXISTS', p .. 'intake', 'paused') == 1 then return {'refused', 'paused'} end
  if ending or not among(ARGV[4], status) or not redis.call('ZSCORE', p .. 'ready', key) then
    return {'refused', status}
  end
  local ready_at, seen_at = tonumber(redis.call('HGET', KEYS[1], 'ready_at')), server_seen(p, now)
  if ARGV[10] ~= 'again' and ready_at < seen_at and now < seen_at + ARGV[5] then
    -- Somebody may be executing it whose claim was forgotten; the sweep offers it when that one had its time.
    redis.call('HDEL', KEYS[1], 'hints')
    redis.call('ZADD', p .. 'ready', seen_at + ARGV[5] - 2000, key)
    return {'refused', 'held'}
  end
  redis.call('HSET', KEYS[1], 'status', 'running', 'execution', ARGV[3], 'worker', ARGV[7], 'host', ARGV[8], 'pid', ARGV[9])
  redis.call('HSETNX', KEYS[1], 'started_at', now)
  redis.call('HSETNX', KEYS[1], 'deadline_at', string.format('%d', now + ARGV[6]))
  redis.call('HINCRBY', KEYS[1], 'attempt', 1)
  redis.call('ZREM', p .. 'ready', key)
  observe(p, now, 'queue_wait', now - ready_at)
end
redis.call('ZADD', p .. 'leases', now + ARGV[5], key)
local r = redis.call('HMGET', KEYS[1], 'deadline_at', 'attempt', 'agent', 'actor', 'thread_id', 'run_id')
local input = redis.call('GET', p .. 'input:' .. key)
return {'claimed', now, r[1], r[2], r[3], r[4], r[5], r[6], input or '', redis.call('LLEN', p .. 'log:' .. key)}
