#include "auth/token.h"

#include <openssl/crypto.h>
#include "record/member.h"
#include "auth/user.h"
#include "base/sha256.h"
#include "base/log.h"
#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"

#define BOARD_PREFIX "pcp_board_"
#define AGENT_PREFIX "pcp_"
#define RANDOM_BYTES 24
#define SHOWN 6 /* hex digits behind the prefix by which an owner knows a token again */
#define TOKEN_NAME_MAX 100
#define USE_NOTED_MS 60000

/* Read by the table and made by hand: a token's hash is written and never read into a record. */
#define AT(member) .offset = offsetof(struct token, member)
const struct column TOKEN_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, 0, AT(id) },
	{ "userId", "user_id", COLUMN_ID, COLUMN_SPARSE, AT(user_id) },
	{ "agentId", "agent_id", COLUMN_ID, COLUMN_SPARSE, AT(agent_id) },
	{ NULL, "a.company_id", COLUMN_ID, 0, AT(company_id) },
	{ "name", "name", COLUMN_TEXT, 0, AT(name) },
	{ "prefix", "prefix", COLUMN_TEXT, 0, AT(prefix), .summary = "How it begins" },
	{ "permissions", "permissions", COLUMN_JSON, COLUMN_SPARSE, AT(permissions),
	  .shape = "[string]", .summary = "All that it is for" },
	{ "expiresAt", "expires_at", COLUMN_TIME, COLUMN_NULLABLE, AT(expires_at) },
	{ NULL, "revoked_at", COLUMN_TIME, COLUMN_NULLABLE, AT(revoked_at) },
	{ "lastUsedAt", "last_used_at", COLUMN_TIME, COLUMN_NULLABLE, AT(last_used_at) },
	{ "createdAt", "created_at", COLUMN_TIME, 0, AT(created_at) },
	{ "token", NULL, COLUMN_TEXT, COLUMN_VIEW, .summary = "Only in the answer that made it" },
	{ 0 },
};
static const struct row_kind TOKEN = { "Token", sizeof(struct token), TOKEN_COLUMNS };

#define TOKEN_SELECT "SELECT {t.*} FROM tokens t LEFT JOIN agents a ON a.id = t.agent_id"
#define TOKEN_ORDER " AND t.revoked_at IS NULL ORDER BY t.created_at DESC, t.id LIMIT 1000"
SQL_OF(TOKEN_GET, TOKEN_COLUMNS, TOKEN_SELECT " WHERE t.id = $1");
SQL_OF(TOKEN_LIST_USER, TOKEN_COLUMNS,
       TOKEN_SELECT " WHERE t.user_id IS NOT NULL AND t.user_id = $1" TOKEN_ORDER);
SQL_OF(TOKEN_LIST_USERS, TOKEN_COLUMNS, TOKEN_SELECT " WHERE t.user_id IS NOT NULL" TOKEN_ORDER);
SQL_OF(TOKEN_LIST_AGENT, TOKEN_COLUMNS,
       TOKEN_SELECT " WHERE t.agent_id IS NOT NULL AND t.agent_id = $1" TOKEN_ORDER);
SQL(TOKEN_INSERT,
    "INSERT INTO tokens"
    " (id, user_id, agent_id, name, prefix, hash, expires_at, created_at, permissions)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)");
SQL(TOKEN_REVOKE, "UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL");
SQL(TOKEN_FIND, "SELECT t.id, t.user_id, t.agent_id, t.hash, t.expires_at, t.revoked_at,"
		" t.last_used_at, u.disabled, r.role, t.permissions FROM tokens t"
		" LEFT JOIN users u ON u.id = t.user_id"
		" LEFT JOIN instance_user_roles r"
		" ON r.user_id = t.user_id AND r.role = 'instance_admin'"
		" WHERE t.hash = $1");
SQL(TOKEN_USED, "UPDATE tokens SET last_used_at = $2"
		" WHERE id = $1 AND (last_used_at IS NULL OR last_used_at <= CAST($3 AS BIGINT))");
SQL(TOKEN_COMPANIES, "SELECT company_id FROM company_memberships WHERE principal_type = 'user'"
		     " AND principal_id = $1 AND status = 'active' ORDER BY company_id LIMIT 1000");

void token_clear(struct token *token)
{
	row_clear(&TOKEN, token);
}

json_t *token_json(const struct token *token)
{
	return row_json(&TOKEN, token);
}

int token_get(struct db *db, const char *id, struct token *out, struct error *err)
{
	return row_get(db, &TOKEN, &TOKEN_GET, out, err, B_TEXT(id));
}

json_t *token_list(struct db *db, const char *user_id, const char *agent_id, struct error *err)
{
	if (agent_id)
		return row_list(db, &TOKEN, &TOKEN_LIST_AGENT, err, B_TEXT(agent_id));
	if (user_id)
		return row_list(db, &TOKEN, &TOKEN_LIST_USER, err, B_TEXT(user_id));
	return row_list(db, &TOKEN, &TOKEN_LIST_USERS, err);
}

/* ---- making and revoking ---- */

struct token_writing {
	const struct actor *actor;
	const struct token *row;
	const char *hash;
	const char *id;
	int64_t now;
};

static int note_in_company(struct tx *tx, const struct token_writing *w, const struct token *token,
			   const char *company_id, bool created, struct error *err)
{
	bool of_agent = id_is_set(token->agent_id);
	_cleanup_json_ json_t *details = json_object();
	struct activity activity = {
		.company_id = company_id,
		.actor = w->actor,
		.action = of_agent ? (created ? "agent.key_created" : "agent.key_revoked")
				   : (created ? "board_api_key.created" : "board_api_key.revoked"),
		.entity_type = of_agent ? "agent" : "user",
		.entity_id = of_agent ? token->agent_id : token->user_id,
		.details = details,
	};

	json_put_str(details, "keyId", token->id);
	json_put_str(details, "name", token->name);
	return activity_write_tx(tx, w->now, &activity, err);
}

/* A user's token opens every company they are in, so each of them is told. */
static int note_token(struct tx *tx, const struct token_writing *w, const struct token *token,
		      bool created, struct error *err)
{
	_cleanup_strv_ char **companies = NULL;
	int r;

	if (id_is_set(token->agent_id))
		return note_in_company(tx, w, token, token->company_id, created, err);
	{
		_cleanup_cursor_ struct cursor c = { 0 };

		if (tx_query(tx, &c, &TOKEN_COMPANIES, err, B_TEXT(token->user_id)) < 0)
			return -1;
		while ((r = cursor_next(&c, err)) > 0)
			strv_push(&companies, xstrdup(col_text(&c, 0)));
		if (r < 0)
			return -1;
	}
	for (size_t i = 0; companies && companies[i]; i++)
		if (note_in_company(tx, w, token, companies[i], created, err) < 0)
			return -1;
	return 0;
}

static int check_owner(struct tx *tx, const struct token *row, struct error *err)
{
	_cleanup_user_ struct user user = { 0 };
	_cleanup_(agent_clear) struct agent agent = { 0 };

	if (id_is_set(row->agent_id)) {
		if (agent_get_tx(tx, row->agent_id, &agent, err) < 0)
			return -1;
		if (!agent_may_act(&agent))
			return error_set(err, ERR_CONFLICT, "an agent that is %s cannot have keys",
					 agent_status_name(agent.status));
		return 0;
	}
	if (user_get_tx(tx, row->user_id, &user, err) < 0)
		return -1;
	if (user.disabled)
		return error_set(err, ERR_CONFLICT, "the user \"%s\" is disabled", user.name);
	return 0;
}

static int insert_token(struct tx *tx, void *arg, struct error *err)
{
	const struct token_writing *w = arg;
	const struct token *row = w->row;
	_cleanup_token_ struct token written = { 0 };
	_cleanup_free_ char *permissions = row->permissions ? json_text(row->permissions) : NULL;

	if (check_owner(tx, row, err) < 0 ||
	    tx_exec(tx, &TOKEN_INSERT, err, B_TEXT(row->id), B_ID(row->user_id),
		    B_ID(row->agent_id), B_TEXT(row->name), B_TEXT(row->prefix), B_TEXT(w->hash),
		    B_TIME(row->expires_at), B_INT(row->created_at), B_TEXT(permissions)) < 0 ||
	    row_get_tx(tx, &TOKEN, &TOKEN_GET, &written, err, B_TEXT(row->id)) < 0)
		return -1;
	return note_token(tx, w, &written, true, err);
}

static void make_text(const char *prefix, char text[TOKEN_TEXT_SIZE], char **shown)
{
	unsigned char bytes[RANDOM_BYTES];
	char hex[2 * RANDOM_BYTES + 1];

	random_bytes(bytes, sizeof(bytes));
	hex_encode(hex, bytes, sizeof(bytes));
	snprintf(text, TOKEN_TEXT_SIZE, "%s%s", prefix, hex);
	*shown = xasprintf("%s%.*s", prefix, SHOWN, hex);
	wipe(bytes, sizeof(bytes));
	wipe(hex, sizeof(hex));
}

int token_create(struct db *db, struct clock *clock, const struct actor *actor,
		 const struct token_request *wish, struct token *out, char text[TOKEN_TEXT_SIZE],
		 struct error *err)
{
	_cleanup_token_ struct token row = { .created_at = clock_now(clock) };
	char hash[SHA256_HEX_SIZE];
	struct token_writing w = {
		.actor = actor, .row = &row, .hash = hash, .now = row.created_at
	};

	row.name = name_trimmed("A token's name", wish->name, TOKEN_NAME_MAX, err);
	if (!row.name)
		return -1;
	id_new(row.id);
	id_copy(row.user_id, wish->user_id);
	id_copy(row.agent_id, wish->agent_id);
	row.permissions = json_incref(wish->permissions);
	row.expires_at = wish->ttl_ms > 0 ? row.created_at + wish->ttl_ms : 0;
	make_text(wish->agent_id ? AGENT_PREFIX : BOARD_PREFIX, text, &row.prefix);
	sha256_hex(text, strlen(text), hash);
	if (DB_WRITE(db, "token.create", insert_token, &w, err) < 0) {
		wipe(text, TOKEN_TEXT_SIZE);
		return -1;
	}
	hand_over(out, row);
	return 0;
}

static int revoke_token(struct tx *tx, void *arg, struct error *err)
{
	const struct token_writing *w = arg;
	_cleanup_token_ struct token token = { 0 };

	if (row_get_tx(tx, &TOKEN, &TOKEN_GET, &token, err, B_TEXT(w->id)) < 0)
		return -1;

	int64_t n = tx_exec(tx, &TOKEN_REVOKE, err, B_TEXT(w->id), B_INT(w->now));

	if (n < 0)
		return -1;
	if (n == 0)
		return error_set(err, ERR_NOT_FOUND, "Token not found");
	return note_token(tx, w, &token, false, err);
}

int token_revoke(struct db *db, struct clock *clock, const struct actor *actor, const char *id,
		 struct error *err)
{
	struct token_writing w = { .actor = actor, .id = id, .now = clock_now(clock) };

	return DB_WRITE(db, "token.revoke", revoke_token, &w, err);
}

/* ---- coming in with one ---- */

struct token_search {
	const char *hash;
	int64_t now;
	struct token_owner *out;
	int64_t last_used_at;
};

static int refuse_token(struct error *err)
{
	return error_set(err, ERR_UNAUTHENTICATED,
			 "the token is not valid: unknown, expired or revoked");
}

/* A permission of a later version is nothing that this one could give. */
static unsigned known_permissions(struct cursor *c)
{
	_cleanup_json_ json_t *names = NULL;
	unsigned permissions = 0;
	json_t *name;
	size_t i;

	if (col_json(c, 9, "permissions", &names, NULL) < 0)
		return 0;
	json_array_foreach (names, i, name) {
		enum permission permission;

		if (permission_parse(json_string_value(name), &permission))
			permissions |= PERMISSION_BIT(permission);
	}
	return permissions;
}

static int find_token(struct tx *tx, void *arg, struct error *err)
{
	struct token_search *s = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	*s->out = (struct token_owner){ 0 };
	if (tx_query(tx, &c, &TOKEN_FIND, err, B_TEXT(s->hash)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r < 0)
		return -1;
	if (r == 0 || CRYPTO_memcmp(col_text(&c, 3), s->hash, SHA256_HEX_SIZE - 1) != 0)
		return refuse_token(err);

	bool expired = !col_is_null(&c, 4) && col_int(&c, 4) <= s->now;
	bool revoked = !col_is_null(&c, 5), disabled = col_int(&c, 7) != 0;

	if (expired || revoked || disabled)
		return refuse_token(err);
	id_copy(s->out->token_id, col_text(&c, 0));
	id_copy(s->out->user_id, col_text(&c, 1));
	id_copy(s->out->agent_id, col_text(&c, 2));
	s->out->is_admin = !col_is_null(&c, 8);
	s->out->is_limited = !col_is_null(&c, 9);
	s->out->permissions = s->out->is_limited ? known_permissions(&c) : 0;
	s->last_used_at = col_int(&c, 6);
	return 0;
}

int token_find(struct db *db, struct clock *clock, const char *text, struct token_owner *out,
	       struct error *err)
{
	char hash[SHA256_HEX_SIZE];
	struct token_search s = { .hash = hash, .now = clock_now(clock), .out = out };
	_cleanup_error_ struct error unnoted = { 0 };

	sha256_hex(text, strlen(text), hash);
	if (db_read(db, find_token, &s, err) < 0)
		return -1;
	/* The owner may come in whether or not that can be written down. */
	if (s.last_used_at <= s.now - USE_NOTED_MS &&
	    DB_EXEC(db, "token.use", &TOKEN_USED, &unnoted, B_TEXT(out->token_id), B_INT(s.now),
		    B_INT(s.now - USE_NOTED_MS)) < 0)
		log_warn("the use of token %s could not be noted: %s", out->token_id,
			 unnoted.message);
	return 0;
}
