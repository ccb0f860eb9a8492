-- A run whose worker was lost goes back to the queue for its next attempt; its log and its record change in this one step.
-- keys: run record, log
-- args: prefix, key, allowed statuses, guard (late or child, as fence), guard value, guard value 2, the lost attempt,
--       expected first seq, bytes of the frames, doorbell limit, channel, frames ...
-- result: {'retried'} | {'kept', status} | {'gap', log length} | {'gone'}
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'ending', 'finished_at', 'cancel_requested_at', 'worker',
  'pid', 'host', 'attempt', 'retries', 'deadline_at', 'bytes', 'lost')
if not r[1] then return {'gone'} end
local now = clock()
local lease = redis.call('ZSCORE', p .. 'leases', key)
local fits = (ARGV[4] == 'late' and lease and tonumber(lease) <= tonumber(now))
  or (ARGV[4] == 'child' and r[6] == ARGV[5] and r[7] == ARGV[6])
if not fits or not among(ARGV[3], r[1]) or r[3] or r[4] or r[5] or not r[10]
  or tonumber(r[9]) > tonumber(r[10]) or tonumber(r[11]) <= tonumber(now) then
  return {'kept', r[1]}
end
local length = redis.call('LLEN', KEYS[2])
if r[9] ~= ARGV[7] or tonumber(ARGV[8]) ~= length + 1 then return {'gap', length} end
for from = 12, #ARGV, 4000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + 3999, #ARGV)))
end
-- The execution is gone from the record, as from any queued run's; a claim of one that is in here is refused.
local lost = r[13] and cjson.decode(r[13]) or {}
lost[#lost + 1] = {attempt = tonumber(r[9]), execution = r[2], worker = r[6], host = r[8], pid = tonumber(r[7]),
  at = tonumber(now)}
redis.call('HSET', KEYS[1], 'status', 'queued', 'ready_at', now, 'last_event_at', now,
  'bytes', string.format('%d', r[12] + ARGV[9]), 'lost', cjson.encode(lost))
redis.call('HDEL', KEYS[1], 'execution', 'worker', 'host', 'pid', 'hints', 'calling')
redis.call('ZREM', p .. 'leases', key)
redis.call('ZADD', p .. 'ready', now, key)
local head = ARGV[8] .. ' ' .. (#ARGV - 11) .. '\n'
if tonumber(ARGV[9]) <= tonumber(ARGV[10]) then
  redis.call('PUBLISH', ARGV[11], head .. table.concat(ARGV, '', 12))
else
  redis.call('PUBLISH', ARGV[11], head)
end
return {'retried'}
