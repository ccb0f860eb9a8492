-- Reads frames after a seq until so many bytes are reached: one round trip, at most about twice the bytes.
-- keys: log
-- args: after, most frames, most bytes
-- result: frames
local at, left, room, step = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), 1
local frames = {}
while left > 0 and room > 0 do
  local count = math.min(step, left)
  local part = redis.call('LRANGE', KEYS[1], at, at + count - 1)
  for _, frame in ipairs(part) do
    frames[#frames + 1] = frame
    room = room - #frame
  end
  if #part < count then break end
  at, left, step = at + count, left - count, step * 2
  if room > 0 then step = math.max(1, math.min(step, math.ceil(room * #frames / (tonumber(ARGV[3]) - room)))) end
end
return frames
