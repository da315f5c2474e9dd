/*
 * What a person or an agent is in a company: a membership with a role, and permissions granted one
 * by one on top of what the role brings. An agent belongs to its company by its own row; a
 * membership of it only carries grants, or takes its access away.
 */
#pragma once

#include "record/kinds.h"
#include "record/record.h"

#define PERMISSION_BIT(permission) (1u << (permission))
#define PERMISSIONS_ALL (PERMISSION_BIT(PERMISSION_COUNT) - 1)
_Static_assert(PERMISSION_COUNT < 32, "a set of permissions fits an unsigned");

struct principal {
	enum principal_kind kind;
	const char *id;
};

struct membership {
	char company_id[ID_SIZE], principal_id[ID_SIZE];
	enum principal_kind kind;
	enum member_role role;
	enum member_status status;
	unsigned granted;     /* one by one */
	unsigned permissions; /* with those of the role; none unless active */
	char *name;           /* of the user or agent */
	int64_t created_at, updated_at;
};
void membership_clear(struct membership *membership);
#define _cleanup_membership_ _cleanup_(membership_clear)
json_t *membership_json(const struct membership *membership);

/* What a role may do without being granted anything (spec 04 11.5). */
unsigned role_permissions(enum member_role role);
json_t *permissions_json(unsigned permissions); /* array of names, in the order of the table */
/* ERR_VALIDATION names the word that is none, and those there are. */
int permissions_read(const json_t *names, unsigned *out, struct error *err);

/* ERR_NOT_FOUND when there is none. */
int membership_get(struct db *db, const char *company_id, const struct principal *principal,
		   struct membership *out, struct error *err);
int membership_get_tx(struct tx *tx, const char *company_id, const struct principal *principal,
		      struct membership *out, struct error *err);
json_t *membership_list(struct db *db, const char *company_id, struct error *err);
/* Those of a principal, in every company, as membership_json with companyName. */
json_t *membership_list_of(struct db *db, const struct principal *principal, struct error *err);

struct membership_change {
	const enum member_role *role;     /* NULL: as it is; of a new one member */
	const enum member_status *status; /* NULL: as it is; of a new one active */
	const unsigned *granted;          /* NULL: as they are */
};
/*
 * Makes or changes one. ERR_NOT_FOUND when there is no such user, or no such agent in the company;
 * ERR_CONFLICT when nobody would be left as owner; ERR_FORBIDDEN when somebody who is no owner
 * makes or touches one, or grants what they do not have themselves.
 */
int membership_put(struct db *db, struct clock *clock, const struct actor *actor,
		   const char *company_id, const struct principal *principal,
		   const struct membership_change *change, struct membership *out,
		   struct error *err);
int membership_delete(struct db *db, struct clock *clock, const struct actor *actor,
		      const char *company_id, const struct principal *principal, struct error *err);
/* The first owner of a company that was just made. */
int membership_add_owner_tx(struct tx *tx, int64_t now, const char *company_id, const char *user_id,
			    struct error *err);
