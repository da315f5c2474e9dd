/*
 * Tokens of people ("pcp_board_" and 48 hex digits) and of agents ("pcp_" and 48 hex digits). Only
 * a SHA-256 of the text is kept, and its first characters so that its owner knows it again.
 */
#pragma once

#include "record/record.h"

#define TOKEN_TEXT_SIZE 64
#define BOARD_TOKEN_TTL_MS ((int64_t)30 * 86400 * 1000)

struct token {
	char id[ID_SIZE], user_id[ID_SIZE], agent_id[ID_SIZE]; /* of one of them */
	char company_id[ID_SIZE];                              /* of the agent */
	char *name, *prefix;
	json_t *permissions; /* all that it is for; NULL: everything that its owner may */
	int64_t expires_at, revoked_at, last_used_at, created_at; /* 0: not */
};
void token_clear(struct token *token);
#define _cleanup_token_ _cleanup_(token_clear)
extern const struct column TOKEN_COLUMNS[]; /* db/column.h */
json_t *token_json(const struct token *token);

/* Agents that were ended, or were not let begin, have no access. */
static inline bool agent_may_act(const struct agent *agent)
{
	return agent->status != AGENT_STATUS_TERMINATED &&
	       agent->status != AGENT_STATUS_PENDING_APPROVAL;
}

struct token_request {
	const char *user_id, *agent_id; /* one of them */
	const char *name;
	int64_t ttl_ms;      /* 0: no end */
	json_t *permissions; /* as in struct token; borrowed */
};
/*
 * `text` is the only copy of the token there will ever be. ERR_NOT_FOUND without such a user or
 * agent, ERR_CONFLICT for a user or agent that has no access anyway. Written to the activity of the
 * companies it opens, without the token.
 */
int token_create(struct db *db, struct clock *clock, const struct actor *actor,
		 const struct token_request *wish, struct token *out, char text[TOKEN_TEXT_SIZE],
		 struct error *err);
/* Those that were not revoked, newest first; user_id or agent_id may be NULL, both: every user's.
 */
json_t *token_list(struct db *db, const char *user_id, const char *agent_id, struct error *err);
int token_get(struct db *db, const char *id, struct token *out, struct error *err);
/* ERR_NOT_FOUND also when it was revoked before. */
int token_revoke(struct db *db, struct clock *clock, const struct actor *actor, const char *id,
		 struct error *err);

/*
 * Whose token this is: ERR_UNAUTHENTICATED when it is nobody's, expired, revoked, or its user is
 * disabled. Notes the use, at most once a minute.
 */
struct token_owner {
	char token_id[ID_SIZE], user_id[ID_SIZE], agent_id[ID_SIZE];
	bool is_admin; /* of a user */
	bool is_limited;
	unsigned permissions; /* all that a limited one is for */
};
int token_find(struct db *db, struct clock *clock, const char *text, struct token_owner *out,
	       struct error *err);
