#!lua flags=allow-oom
-- Writes a worker's heartbeat, also in a full Redis.
-- keys: heartbeat
-- args: facts, seconds it stands
-- result: OK
return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
