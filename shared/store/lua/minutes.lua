-- Tells one bucket's numbers of those minutes in which anything was counted.
-- keys: the bucket's totals, which place the call
-- args: prefix, then minutes since the epoch
-- result: for each minute with numbers: the minute, its hash as a flat list
local told = {}
for at = 2, #ARGV do
  local numbers = redis.call('HGETALL', ARGV[1] .. 'stats:' .. ARGV[at])
  if #numbers > 0 then
    told[#told + 1] = ARGV[at]
    told[#told + 1] = numbers
  end
end
return told
