#!lua flags=allow-oom
-- Renews the leases of one process in one bucket and tells each run's cancel flag.
-- keys: leases
-- args: prefix, lease ms, (key, execution id) ...
-- result: for each run 'ok' | 'cancel <cause>' | 'lost' | 'unclaimed' | 'gone'
local p, now, answers = ARGV[1], clock(), {}
for at = 3, #ARGV, 2 do
  local r = redis.call('HMGET', p .. 'run:' .. ARGV[at], 'status', 'execution', 'cancel_cause')
  local answer
  if not r[1] then
    answer = 'gone'
  elseif r[1] == 'queued' and not r[2] then
    answer = 'unclaimed'
  elseif r[1] ~= 'running' or r[2] ~= ARGV[at + 1] then
    answer = 'lost'
  else
    redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[at])
    answer = r[3] and ('cancel ' .. r[3]) or 'ok'
  end
  answers[#answers + 1] = answer
end
return answers
