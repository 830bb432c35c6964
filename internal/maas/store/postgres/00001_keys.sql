-- +goose Up
-- The table as the known server has it after its migration 0006. Every step can meet a database at any of them.
CREATE TABLE IF NOT EXISTS api_keys (
    id TEXT PRIMARY KEY,
    username TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    key_hash TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'revoked', 'expired')),
    user_groups TEXT[] NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ
);
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS ephemeral BOOLEAN NOT NULL DEFAULT false;
-- Keys from before there were subscriptions have none, and say so when they are checked.
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS subscription TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS tenant TEXT NOT NULL DEFAULT 'models-as-a-service';
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS labels JSONB CHECK (labels IS NULL OR jsonb_typeof(labels) = 'object');

-- Indexes of the known server go, by what they are, as nobody promised their names: those that no question uses, that make
-- each note of a use rewrite them, or that a build left half-made.
-- +goose StatementBegin
DO $$
DECLARE known regclass;
BEGIN
    FOR known IN
        SELECT i.indexrelid::regclass FROM pg_index i
        WHERE i.indrelid = 'api_keys'::regclass AND NOT i.indisprimary
            AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)
            AND (NOT i.indisvalid OR pg_get_indexdef(i.indexrelid) ~
                ' USING (gin \((labels|user_groups)|btree \((last_used_at|status, expires_at\)|username, created_at|key_hash\)|key_hash, tenant\)|tenant, username, created_at))')
    LOOP
        EXECUTE format('DROP INDEX %s', known);
    END LOOP;
END
$$;
-- +goose StatementEnd
CREATE UNIQUE INDEX api_keys_digest ON api_keys (key_hash, tenant);
CREATE INDEX api_keys_of_user ON api_keys (tenant, username, created_at DESC, id);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, created_at DESC, id);
CREATE INDEX api_keys_of_subscription ON api_keys (tenant, subscription) WHERE status = 'active';
CREATE INDEX api_keys_ephemeral ON api_keys (tenant, expires_at) WHERE ephemeral;
CREATE INDEX api_keys_labels ON api_keys USING GIN (labels jsonb_path_ops);
-- Room beside each row, so that a note of its use stays on its page.
ALTER TABLE api_keys SET (fillfactor = 85);

-- Whoever changes a key, by whatever means, tells all replicas of it when the change is committed.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION maas_api_keys_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids TEXT[];
    told TEXT;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        told := '*';
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg(o.id) INTO ids FROM (SELECT id FROM old_rows LIMIT 101) o;
    ELSE
        SELECT array_agg(c.id) INTO ids FROM (
            SELECT o.id FROM old_rows o LEFT JOIN new_rows n ON n.id = o.id
            WHERE (o.status, o.expires_at, o.subscription, o.user_groups, o.tenant, o.key_hash, o.username, o.name)
                IS DISTINCT FROM (n.status, n.expires_at, n.subscription, n.user_groups, n.tenant, n.key_hash, n.username, n.name)
            LIMIT 101) c;
    END IF;
    IF told IS NULL AND ids IS NOT NULL THEN
        told := array_to_string(ids, ',');
        IF cardinality(ids) > 100 OR octet_length(told) > 7000 THEN
            told := '*';
        END IF;
    END IF;
    IF told IS NOT NULL THEN
        PERFORM pg_notify('maas_api_keys', told);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER maas_api_keys_updated AFTER UPDATE ON api_keys
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION maas_api_keys_changed();
CREATE TRIGGER maas_api_keys_deleted AFTER DELETE ON api_keys
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION maas_api_keys_changed();
CREATE TRIGGER maas_api_keys_truncated AFTER TRUNCATE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION maas_api_keys_changed();

-- The known server, started again, finds that there is nothing left for it to do.
-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('schema_migrations') IS NOT NULL THEN
        UPDATE schema_migrations SET version = 6 WHERE version < 6;
    END IF;
END
$$;
-- +goose StatementEnd
