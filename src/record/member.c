#include "record/member.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"

#define MEMBERSHIP_COLUMNS                                                                         \
	"m.company_id, m.principal_type, m.principal_id, m.role, m.status, m.created_at,"          \
	" m.updated_at, COALESCE(u.name, a.name), g.permission_key"
/* One row for each grant, and one for a membership without any. */
#define MEMBERSHIP_FROM                                                                            \
	" FROM company_memberships m"                                                              \
	" LEFT JOIN users u ON m.principal_type = 'user' AND u.id = m.principal_id"                \
	" LEFT JOIN agents a ON m.principal_type = 'agent' AND a.id = m.principal_id"              \
	" LEFT JOIN principal_permission_grants g ON g.company_id = m.company_id"                  \
	" AND g.principal_type = m.principal_type AND g.principal_id = m.principal_id"

SQL(MEMBERSHIP_GET, "SELECT " MEMBERSHIP_COLUMNS MEMBERSHIP_FROM
		    " WHERE m.company_id = $1 AND m.principal_type = $2 AND m.principal_id = $3");
SQL(MEMBERSHIP_LIST, "SELECT " MEMBERSHIP_COLUMNS MEMBERSHIP_FROM " WHERE m.company_id = $1"
		     " ORDER BY m.principal_type DESC, m.created_at, m.principal_id LIMIT 8000");
SQL(MEMBERSHIP_LIST_OF,
    "SELECT " MEMBERSHIP_COLUMNS ", c.name" MEMBERSHIP_FROM
    " JOIN companies c ON c.id = m.company_id"
    " WHERE m.principal_type = $1 AND m.principal_id = $2 AND m.status = 'active'"
    " ORDER BY c.created_at, m.company_id LIMIT 8000");
SQL(MEMBERSHIP_PUT,
    "INSERT INTO company_memberships"
    " (company_id, principal_type, principal_id, role, status, created_at, updated_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $6)"
    " ON CONFLICT (company_id, principal_type, principal_id)"
    " DO UPDATE SET role = excluded.role, status = excluded.status,"
    " updated_at = excluded.updated_at");
SQL(MEMBERSHIP_DELETE, "DELETE FROM company_memberships"
		       " WHERE company_id = $1 AND principal_type = $2 AND principal_id = $3");
SQL(MEMBERSHIP_OTHER_OWNER, "SELECT 1 FROM company_memberships WHERE company_id = $1"
			    " AND principal_type = 'user' AND role = 'owner' AND status = 'active'"
			    " AND principal_id <> $2 LIMIT 1");
SQL(GRANTS_DELETE, "DELETE FROM principal_permission_grants"
		   " WHERE company_id = $1 AND principal_type = $2 AND principal_id = $3");
SQL(GRANT_INSERT, "INSERT INTO principal_permission_grants"
		  " (company_id, principal_type, principal_id, permission_key, granted_by,"
		  " created_at) VALUES ($1, $2, $3, $4, $5, $6)");
SQL(MEMBER_USER_EXISTS, "SELECT 1 FROM users WHERE id = $1");
SQL(MEMBER_AGENT_EXISTS, "SELECT 1 FROM agents WHERE id = $1 AND company_id = $2");

#define BIT(permission) PERMISSION_BIT(PERMISSION_##permission)

unsigned role_permissions(enum member_role role)
{
	static const unsigned OF_ROLE[MEMBER_ROLE_COUNT] = {
		[ROLE_OWNER] = BIT(AGENTS_CREATE) | BIT(ENVIRONMENTS_MANAGE) | BIT(USERS_INVITE) |
			       BIT(USERS_MANAGE) | BIT(TASKS_ASSIGN) | BIT(JOINS_APPROVE) |
			       BIT(LEASES_USE),
		[ROLE_ADMIN] = BIT(AGENTS_CREATE) | BIT(ENVIRONMENTS_MANAGE) | BIT(USERS_INVITE) |
			       BIT(TASKS_ASSIGN) | BIT(JOINS_APPROVE) | BIT(LEASES_USE),
		[ROLE_OPERATOR] = BIT(TASKS_ASSIGN) | BIT(LEASES_USE),
	};

	return OF_ROLE[role];
}

static char *permission_list(void)
{
	_cleanup_buf_ struct buf out = { 0 };

	for (unsigned i = 0; i < PERMISSION_COUNT; i++)
		buf_printf(&out, "%s%s", i ? ", " : "", permission_name(i));
	return buf_steal(&out);
}

int permissions_read(const json_t *names, unsigned *out, struct error *err)
{
	json_t *name;
	size_t i;

	*out = 0;
	json_array_foreach (names, i, name) {
		enum permission permission;

		if (!permission_parse(json_string_value(name), &permission)) {
			_cleanup_free_ char *known = permission_list();

			return error_set(
				err, ERR_VALIDATION,
				"permissions: there is no permission \"%.100s\"; there are %s",
				json_string_value(name), known);
		}
		*out |= PERMISSION_BIT(permission);
	}
	return 0;
}

json_t *permissions_json(unsigned permissions)
{
	json_t *names = json_array();

	for (unsigned i = 0; i < PERMISSION_COUNT; i++)
		if (permissions & PERMISSION_BIT(i))
			json_array_append_new(names, json_string(permission_name(i)));
	return names;
}

void membership_clear(struct membership *membership)
{
	free(membership->name);
	*membership = (struct membership){ 0 };
}

json_t *membership_json(const struct membership *m)
{
	json_t *o = json_object();

	json_put_str(o, "companyId", m->company_id);
	json_put_str(o, "principalType", principal_kind_name(m->kind));
	json_put_str(o, "principalId", m->principal_id);
	json_put_str(o, "name", m->name);
	json_put_str(o, "role", member_role_name(m->role));
	json_put_str(o, "status", member_status_name(m->status));
	json_put_new(o, "grants", permissions_json(m->granted));
	json_put_new(o, "permissions", permissions_json(m->permissions));
	json_put_time(o, "createdAt", m->created_at);
	json_put_time(o, "updatedAt", m->updated_at);
	return o;
}

static int read_membership(struct cursor *c, struct membership *out, struct error *err)
{
	struct membership m = { .created_at = col_int(c, 5), .updated_at = col_int(c, 6) };

	if (!principal_kind_parse(col_text(c, 1), &m.kind))
		return unexpected_value(err, "principal type", col_text(c, 1));
	if (!member_role_parse(col_text(c, 3), &m.role))
		return unexpected_value(err, "role", col_text(c, 3));
	if (!member_status_parse(col_text(c, 4), &m.status))
		return unexpected_value(err, "membership status", col_text(c, 4));
	id_copy(m.company_id, col_text(c, 0));
	id_copy(m.principal_id, col_text(c, 2));
	m.name = xstrdup(col_text(c, 7));
	*out = m;
	return 0;
}

/* A permission of a later version is nothing that this one could give. */
static void add_grant(struct cursor *c, struct membership *m)
{
	enum permission permission;

	if (permission_parse(col_text(c, 8), &permission))
		m->granted |= PERMISSION_BIT(permission);
}

static void settle_permissions(struct membership *m)
{
	bool counts = m->status == MEMBER_ACTIVE;
	unsigned of_role = m->kind == PRINCIPAL_USER ? role_permissions(m->role) : 0;

	m->permissions = counts ? m->granted | of_role : 0;
}

int membership_get_tx(struct tx *tx, const char *company_id, const struct principal *principal,
		      struct membership *out, struct error *err)
{
	_cleanup_membership_ struct membership m = { 0 };
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &MEMBERSHIP_GET, err, B_TEXT(company_id),
		     B_TEXT(principal_kind_name(principal->kind)), B_TEXT(principal->id)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		if (!m.principal_id[0] && read_membership(&c, &m, err) < 0)
			return -1;
		add_grant(&c, &m);
	}
	if (r < 0)
		return -1;
	if (!m.principal_id[0])
		return error_set(err, ERR_NOT_FOUND, "Member not found");
	settle_permissions(&m);
	hand_over(out, m);
	return 0;
}

struct membership_query {
	const char *company_id;
	const struct principal *principal;
	struct membership *out;
	json_t *list;
};

static int get_one(struct tx *tx, void *arg, struct error *err)
{
	struct membership_query *q = arg;

	membership_clear(q->out);
	return membership_get_tx(tx, q->company_id, q->principal, q->out, err);
}

int membership_get(struct db *db, const char *company_id, const struct principal *principal,
		   struct membership *out, struct error *err)
{
	struct membership_query q = { company_id, principal, out, NULL };

	return db_read(db, get_one, &q, err);
}

/* ---- lists: the rows of one membership follow each other ---- */

static void list_add(json_t *list, struct membership *m, const char *company_name)
{
	if (!m->principal_id[0])
		return;
	settle_permissions(m);

	json_t *json = membership_json(m);

	if (company_name)
		json_put_str(json, "companyName", company_name);
	json_array_append_new(list, json);
	membership_clear(m);
}

static bool is_of(const struct membership *m, struct cursor *c)
{
	return streq(m->company_id, col_text(c, 0)) && streq(m->principal_id, col_text(c, 2)) &&
	       streq(principal_kind_name(m->kind), col_text(c, 1));
}

static int list_rows(struct cursor *c, bool with_company, json_t *list, struct error *err)
{
	_cleanup_membership_ struct membership m = { 0 };
	_cleanup_free_ char *company = NULL;
	int r;

	while ((r = cursor_next(c, err)) > 0) {
		if (!is_of(&m, c)) {
			list_add(list, &m, company);
			if (read_membership(c, &m, err) < 0)
				return -1;
			free(company);
			company = with_company ? xstrdup(col_text(c, 9)) : NULL;
		}
		add_grant(c, &m);
	}
	list_add(list, &m, company);
	return r;
}

static int list_company(struct tx *tx, void *arg, struct error *err)
{
	struct membership_query *q = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	json_array_clear(q->list);
	if (tx_query(tx, &c, &MEMBERSHIP_LIST, err, B_TEXT(q->company_id)) < 0)
		return -1;
	return list_rows(&c, false, q->list, err);
}

static int list_principal(struct tx *tx, void *arg, struct error *err)
{
	struct membership_query *q = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	json_array_clear(q->list);
	if (tx_query(tx, &c, &MEMBERSHIP_LIST_OF, err,
		     B_TEXT(principal_kind_name(q->principal->kind)), B_TEXT(q->principal->id)) < 0)
		return -1;
	return list_rows(&c, true, q->list, err);
}

json_t *membership_list(struct db *db, const char *company_id, struct error *err)
{
	_cleanup_json_ json_t *list = json_array();
	struct membership_query q = { .company_id = company_id, .list = list };

	return db_read(db, list_company, &q, err) < 0 ? NULL : steal(list);
}

json_t *membership_list_of(struct db *db, const struct principal *principal, struct error *err)
{
	_cleanup_json_ json_t *list = json_array();
	struct membership_query q = { .principal = principal, .list = list };

	return db_read(db, list_principal, &q, err) < 0 ? NULL : steal(list);
}

/* ---- changing ---- */

struct membership_writing {
	const struct actor *actor;
	const char *company_id;
	const struct principal *principal;
	const struct membership_change *change; /* NULL: it goes */
	struct membership *out;
	int64_t now;
};

static int check_principal(struct tx *tx, const struct membership_writing *w, struct error *err)
{
	bool is_user = w->principal->kind == PRINCIPAL_USER;
	int r = is_user ? row_exists_tx(tx, &MEMBER_USER_EXISTS, err, B_TEXT(w->principal->id))
			: row_exists_tx(tx, &MEMBER_AGENT_EXISTS, err, B_TEXT(w->principal->id),
					B_TEXT(w->company_id));

	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "%s not found", is_user ? "User" : "Agent");
	return r < 0 ? -1 : 0;
}

/* Whoever may manage permissions could otherwise make themselves anything. */
static int check_power(struct tx *tx, const struct membership_writing *w,
		       const struct membership *before, const struct membership *after,
		       struct error *err)
{
	const struct principal self = { actor_is_agent(w->actor) ? PRINCIPAL_AGENT : PRINCIPAL_USER,
					w->actor->id };
	_cleanup_membership_ struct membership own = { 0 };
	bool owner_touched = before->role == ROLE_OWNER || after->role == ROLE_OWNER;

	if (w->actor->is_admin)
		return 0;
	if (membership_get_tx(tx, w->company_id, &self, &own, err) < 0)
		return error_recode(err, ERR_FORBIDDEN);
	if (owner_touched && !(own.status == MEMBER_ACTIVE && own.role == ROLE_OWNER))
		return error_set(err, ERR_FORBIDDEN, "only an owner can make or change owners");
	if (after->granted & ~before->granted & ~own.permissions)
		return error_set(err, ERR_FORBIDDEN,
				 "a permission that one does not have cannot be granted");
	if (role_permissions(after->role) & ~role_permissions(before->role) & ~own.permissions)
		return error_set(err, ERR_FORBIDDEN,
				 "the role \"%s\" may do more than you may yourself",
				 member_role_name(after->role));
	return 0;
}

static int check_owners(struct tx *tx, const struct membership_writing *w,
			const struct membership *before, const struct membership *after,
			struct error *err)
{
	bool was = before->role == ROLE_OWNER && before->status == MEMBER_ACTIVE;
	bool stays = after->role == ROLE_OWNER && after->status == MEMBER_ACTIVE;

	if (w->principal->kind != PRINCIPAL_USER || !was || stays)
		return 0;

	int r = row_exists_tx(tx, &MEMBERSHIP_OTHER_OWNER, err, B_TEXT(w->company_id),
			      B_TEXT(w->principal->id));

	if (r == 0)
		return error_set(err, ERR_CONFLICT,
				 "a company needs an owner: make another member one first");
	return r < 0 ? -1 : 0;
}

static int write_grants(struct tx *tx, const struct membership_writing *w, unsigned granted,
			struct error *err)
{
	const char *kind = principal_kind_name(w->principal->kind);

	if (tx_exec(tx, &GRANTS_DELETE, err, B_TEXT(w->company_id), B_TEXT(kind),
		    B_TEXT(w->principal->id)) < 0)
		return -1;
	for (unsigned i = 0; i < PERMISSION_COUNT; i++)
		if (granted & PERMISSION_BIT(i) &&
		    tx_exec(tx, &GRANT_INSERT, err, B_TEXT(w->company_id), B_TEXT(kind),
			    B_TEXT(w->principal->id), B_TEXT(permission_name(i)),
			    B_TEXT(w->actor->id), B_INT(w->now)) < 0)
			return -1;
	return 0;
}

static int note_change(struct tx *tx, const struct membership_writing *w, const char *action,
		       const struct membership *m, struct error *err)
{
	_cleanup_json_ json_t *details = json_object();

	json_put_str(details, "principalType", principal_kind_name(w->principal->kind));
	json_put_str(details, "role", member_role_name(m->role));
	json_put_str(details, "status", member_status_name(m->status));
	json_put_new(details, "grants", permissions_json(m->granted));
	return activity_write_tx(tx, w->now,
				 &(struct activity){ .company_id = w->company_id,
						     .actor = w->actor,
						     .action = action,
						     .entity_type = "member",
						     .entity_id = w->principal->id,
						     .details = details },
				 err);
}

/* What is there now, or what a new one starts from. */
static int read_before(struct tx *tx, const struct membership_writing *w, struct membership *before,
		       bool *exists, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	*exists = membership_get_tx(tx, w->company_id, w->principal, before, &why) == 0;
	if (*exists)
		return 0;
	if (why.code != ERR_NOT_FOUND) {
		error_move(err, &why);
		return -1;
	}
	*before = (struct membership){ .role = ROLE_MEMBER, .status = MEMBER_ACTIVE };
	return 0;
}

static int put_membership(struct tx *tx, void *arg, struct error *err)
{
	struct membership_writing *w = arg;
	const struct membership_change *change = w->change;
	_cleanup_membership_ struct membership before = { 0 };
	bool exists;

	if (check_principal(tx, w, err) < 0 || read_before(tx, w, &before, &exists, err) < 0)
		return -1;

	struct membership after = {
		.role = change->role ? *change->role : before.role,
		.status = change->status ? *change->status : before.status,
		.granted = change->granted ? *change->granted : before.granted,
	};

	if (check_power(tx, w, &before, &after, err) < 0 ||
	    check_owners(tx, w, &before, &after, err) < 0 ||
	    tx_exec(tx, &MEMBERSHIP_PUT, err, B_TEXT(w->company_id),
		    B_TEXT(principal_kind_name(w->principal->kind)), B_TEXT(w->principal->id),
		    B_TEXT(member_role_name(after.role)), B_TEXT(member_status_name(after.status)),
		    B_INT(w->now)) < 0 ||
	    write_grants(tx, w, after.granted, err) < 0 ||
	    note_change(tx, w, exists ? "member.updated" : "member.added", &after, err) < 0)
		return -1;
	membership_clear(w->out);
	return membership_get_tx(tx, w->company_id, w->principal, w->out, err);
}

int membership_put(struct db *db, struct clock *clock, const struct actor *actor,
		   const char *company_id, const struct principal *principal,
		   const struct membership_change *change, struct membership *out,
		   struct error *err)
{
	struct membership_writing w = {
		actor, company_id, principal, change, out, clock_now(clock)
	};

	return DB_WRITE(db, "member.put", put_membership, &w, err);
}

static int delete_membership(struct tx *tx, void *arg, struct error *err)
{
	struct membership_writing *w = arg;
	_cleanup_membership_ struct membership before = { 0 };
	struct membership after = { .role = ROLE_VIEWER, .status = MEMBER_ARCHIVED };

	if (membership_get_tx(tx, w->company_id, w->principal, &before, err) < 0 ||
	    check_power(tx, w, &before, &after, err) < 0 ||
	    check_owners(tx, w, &before, &after, err) < 0 || write_grants(tx, w, 0, err) < 0 ||
	    tx_exec(tx, &MEMBERSHIP_DELETE, err, B_TEXT(w->company_id),
		    B_TEXT(principal_kind_name(w->principal->kind)), B_TEXT(w->principal->id)) < 0)
		return -1;
	return note_change(tx, w, "member.removed", &before, err);
}

int membership_delete(struct db *db, struct clock *clock, const struct actor *actor,
		      const char *company_id, const struct principal *principal, struct error *err)
{
	struct membership_writing w = { .actor = actor,
					.company_id = company_id,
					.principal = principal,
					.now = clock_now(clock) };

	return DB_WRITE(db, "member.delete", delete_membership, &w, err);
}

int membership_add_owner_tx(struct tx *tx, int64_t now, const char *company_id, const char *user_id,
			    struct error *err)
{
	return tx_exec(tx, &MEMBERSHIP_PUT, err, B_TEXT(company_id),
		       B_TEXT(principal_kind_name(PRINCIPAL_USER)), B_TEXT(user_id),
		       B_TEXT(member_role_name(ROLE_OWNER)),
		       B_TEXT(member_status_name(MEMBER_ACTIVE)), B_INT(now)) < 0
		       ? -1
		       : 0;
}
