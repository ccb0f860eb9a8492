-- Appends one frozen batch of frames; repeating it is harmless, another execution's is refused.
-- keys: run record, log
-- args: key, execution id, first seq, bytes of the batch, doorbell limit, channel, frames ...
-- result: {'ok', last seq, cancel cause or ''} | {'gap', log length} | {'lost', status} | {'unclaimed'} | {'gone'}
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'cancel_cause', 'bytes')
local status, first, count = r[1], tonumber(ARGV[3]), #ARGV - 6
if not status then return {'gone'} end
if status == 'queued' and not r[2] then return {'unclaimed'} end
if status ~= 'running' or r[2] ~= ARGV[2] then return {'lost', status} end
local length = redis.call('LLEN', KEYS[2])
if first + count - 1 <= length then return {'ok', length, r[3] or ''} end
if first ~= length + 1 then return {'gap', length} end
for from = 7, #ARGV, 4000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + 3999, #ARGV)))
end
local now = clock()
redis.call('HSET', KEYS[1], 'last_event_at', now, 'bytes', string.format('%d', r[4] + ARGV[4]))
if length == 1 then
  redis.call('HSETNX', KEYS[1], 'first_event_at', now)
  local ready = redis.call('HGET', KEYS[1], 'ready_at')
  if ready then observe(string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1] - 4), now, 'first_event', now - ready) end
end
local head = ARGV[3] .. ' ' .. count .. '\n'
if tonumber(ARGV[4]) <= tonumber(ARGV[5]) then
  redis.call('PUBLISH', ARGV[6], head .. table.concat(ARGV, '', 7))
else
  redis.call('PUBLISH', ARGV[6], head)
end
return {'ok', length + count, r[3] or ''}
