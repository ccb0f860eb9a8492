#!lua flags=allow-oom
-- What the sweep has to look at in one bucket; marks the runs it hands out for a new queue message.
-- keys: leases, ready, ended
-- args: prefix, most per list, hint base ms, queue timeout ms, retention ms
-- result: {late keys}, {keys to enqueue}, {keys past the queue timeout}, {keys past retention}
local p, most, now = ARGV[1], tonumber(ARGV[2]), tonumber(clock())
local late = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most)
local hints, timeouts = {}, {}
local ready = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3], 'WITHSCORES', 'LIMIT', 0, most)
for at = 1, #ready, 2 do
  local key, hinted = ready[at], tonumber(ready[at + 1])
  local record = p .. 'run:' .. key
  local r = redis.call('HMGET', record, 'status', 'ready_at', 'hints')
  if r[1] ~= 'queued' then
    redis.call('ZREM', KEYS[2], key)
  elseif tonumber(r[2]) <= now - ARGV[4] then
    timeouts[#timeouts + 1] = key
  elseif hinted + ARGV[3] * 2 ^ math.min(tonumber(r[3] or 0), 10) <= now then
    redis.call('HINCRBY', record, 'hints', 1)
    redis.call('ZADD', KEYS[2], now, key)
    hints[#hints + 1] = key
  end
end
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[5], 'LIMIT', 0, most)
return {late, hints, timeouts, old}
