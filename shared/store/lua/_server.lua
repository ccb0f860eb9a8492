-- Included by accept, claim and survey: since when this very server has been seen. One that was restarted, or
-- promoted, may have forgotten its last second; what is older than this moment is not judged for one lease.
local function server_seen(p, now)
  local r = redis.call('HMGET', p .. 'server', 'run_id', 'seen_at', 'checked_at')
  -- No failover is quicker than this, and INFO costs as much as the rest of a script.
  if r[3] and now - r[3] >= 0 and now - r[3] < 250 then return tonumber(r[2]) end
  local info = redis.pcall('INFO', 'server')
  local run_id = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
  local seen_at = run_id == r[1] and r[2] or now
  redis.call('HSET', p .. 'server', 'run_id', run_id, 'seen_at', seen_at, 'checked_at', now)
  return tonumber(seen_at)
end
