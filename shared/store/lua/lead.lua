#!lua flags=allow-oom
-- Takes or keeps the sweep's leader lock, also in a full Redis.
-- keys: leader lock
-- args: token, hold ms
-- result: 1 for the leader, else 0
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
