-- Searches one bucket, newest first: walks one index, keeps what is in the others too and fits the words.
-- keys: index to walk, further indexes ...
-- args: prefix, newest moment ('+inf' for now), key ('' or: only what comes after it at that moment), oldest moment
--       ('-inf' for any), most kept, most looked at, statuses ('' for any), thread id ('' for any),
--       text in run key, run id or thread id ('' for none)
-- result: {key, moment, key, moment ...}, moment and key of the last one looked at ('' when all were)
local p, most, budget = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])
local kept, offset, step = {}, 0, 200
local function fits(key)
  for at = 2, #KEYS do
    if not redis.call('ZSCORE', KEYS[at], key) then return false end
  end
  if ARGV[7] == '' and ARGV[8] == '' and ARGV[9] == '' then return true end
  local r = redis.call('HMGET', p .. 'run:' .. key, 'status', 'thread_id', 'run_id')
  if not r[1] then return false end
  if ARGV[7] ~= '' and not among(ARGV[7], r[1]) then return false end
  if ARGV[8] ~= '' and r[2] ~= ARGV[8] then return false end
  return ARGV[9] == '' or string.find(key, ARGV[9], 1, true) or string.find(r[3], ARGV[9], 1, true)
    or string.find(r[2], ARGV[9], 1, true)
end
while true do
  local rows = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[2], ARGV[4], 'WITHSCORES', 'LIMIT', offset, step)
  for at = 1, #rows, 2 do
    local key, moment = rows[at], rows[at + 1]
    if ARGV[3] == '' or moment ~= ARGV[2] or key < ARGV[3] then
      budget = budget - 1
      if fits(key) then
        kept[#kept + 1] = key
        kept[#kept + 1] = moment
      end
      if budget <= 0 or #kept >= most * 2 then return {kept, moment, key} end
    end
  end
  if #rows < step * 2 then return {kept, '', ''} end
  offset = offset + step
end
