-- Tells the few facts of every live run in one bucket by which trouble is recognised, the oldest first.
-- keys: live runs, leases
-- args: prefix, most
-- result: how many there are, then for each: key, status, created at, ready at, started at, last event at,
--         cancel requested at, cancel by, worker, agent, lease until; '' for what is not known
local p = ARGV[1]
local told = {redis.call('ZCARD', KEYS[1])}
for _, key in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[2] - 1)) do
  local r = redis.call('HMGET', p .. 'run:' .. key, 'status', 'created_at', 'ready_at', 'started_at', 'last_event_at',
    'cancel_requested_at', 'cancel_by', 'worker', 'agent')
  if r[1] then
    told[#told + 1] = key
    for at = 1, 9 do told[#told + 1] = r[at] or '' end
    told[#told + 1] = redis.call('ZSCORE', KEYS[2], key) or ''
  else
    redis.call('ZREM', KEYS[1], key)
  end
end
return told
