/*
 * People. They come in with tokens; what they may do is said by their memberships, or by being
 * instance admins, who may do everything.
 */
#pragma once

#include "record/record.h"

struct user {
	char id[ID_SIZE];
	char *name;
	bool disabled, is_admin;
	int64_t created_at, updated_at;
};
void user_clear(struct user *user);
#define _cleanup_user_ _cleanup_(user_clear)
extern const struct column USER_COLUMNS[]; /* db/column.h */
json_t *user_json(const struct user *user);

/* A taken name is ERR_CONFLICT. */
int user_create(struct db *db, struct clock *clock, const char *name, bool is_admin,
		struct user *out, struct error *err);
int user_get(struct db *db, const char *id, struct user *out, struct error *err);
int user_get_tx(struct tx *tx, const char *id, struct user *out, struct error *err);
json_t *user_list(struct db *db, struct error *err);
/* NULL: as it is. */
int user_update(struct db *db, struct clock *clock, const char *id, const bool *disabled,
		const bool *is_admin, struct user *out, struct error *err);
