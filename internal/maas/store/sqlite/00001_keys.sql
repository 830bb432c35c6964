-- +goose Up
-- Times are microseconds since 1970, groups and labels JSON.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    username TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    key_hash TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'revoked', 'expired')),
    user_groups TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER,
    ephemeral BOOLEAN NOT NULL DEFAULT FALSE,
    subscription TEXT NOT NULL DEFAULT '',
    tenant TEXT NOT NULL DEFAULT 'models-as-a-service',
    labels TEXT
);
CREATE UNIQUE INDEX api_keys_digest ON api_keys (key_hash, tenant);
CREATE INDEX api_keys_of_user ON api_keys (tenant, username, created_at DESC, id);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, created_at DESC, id);
CREATE INDEX api_keys_of_subscription ON api_keys (tenant, subscription) WHERE status = 'active';
CREATE INDEX api_keys_ephemeral ON api_keys (tenant, expires_at) WHERE ephemeral;
