#!lua flags=allow-oom
-- What the sweep has to look at in one bucket; marks the runs it hands out for a new queue message.
-- While intake is paused, queued runs are neither sent again nor timed out.
-- keys: leases, ready, ended
-- args: prefix, most per list, hint base ms, queue timeout ms, retention ms,
--       ms for which no lease is judged after the server was restarted
-- result: {late keys}, {keys to enqueue}, {keys past the queue timeout}, {keys past retention}
local p, most, now = ARGV[1], tonumber(ARGV[2]), tonumber(clock())
local late = {}
if now >= server_seen(p, now) + ARGV[6] then late = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most) end
local hints, timeouts = {}, {}
local intake = redis.call('HMGET', p .. 'intake', 'paused', 'resumed_at')
local resumed = tonumber(intake[2] or 0)
local ready = {}
if not intake[1] then
  ready = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3], 'WITHSCORES', 'LIMIT', 0, most)
end
for at = 1, #ready, 2 do
  local key, hinted = ready[at], tonumber(ready[at + 1])
  local record = p .. 'run:' .. key
  local r = redis.call('HMGET', record, 'status', 'ready_at', 'hints')
  if r[1] ~= 'queued' then
    redis.call('ZREM', KEYS[2], key)
  elseif math.max(tonumber(r[2]), resumed) <= now - ARGV[4] then
    timeouts[#timeouts + 1] = key
  elseif hinted + math.min(ARGV[3] * 2 ^ math.min(tonumber(r[3] or 0), 10), 120000) <= now then
    redis.call('HINCRBY', record, 'hints', 1)
    redis.call('ZADD', KEYS[2], now, key)
    hints[#hints + 1] = key
  end
end
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[5], 'LIMIT', 0, most)
return {late, hints, timeouts, old}
