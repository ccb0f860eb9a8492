-- Included by finish: what every recorded ending does besides the log and the record.
local function promote(prefix, key, thread, now)
  local turn, wait = prefix .. 'turn:' .. thread, prefix .. 'wait:' .. thread
  if redis.call('GET', turn) ~= key then
    redis.call('LREM', wait, 0, key)
    return ''
  end
  while true do
    local successor = redis.call('LPOP', wait)
    if not successor then
      redis.call('DEL', turn)
      return ''
    end
    local record = prefix .. 'run:' .. successor
    if redis.call('HGET', record, 'status') == 'queued' and redis.call('HEXISTS', record, 'ending') == 0 then
      redis.call('SET', turn, successor)
      redis.call('HSET', record, 'ready_at', now)
      redis.call('ZADD', prefix .. 'ready', now, successor)
      return successor
    end
  end
end
