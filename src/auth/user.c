#include "auth/user.h"

#include "record/row.h"

#define USER_NAME_MAX 100

#define AT(member) .offset = offsetof(struct user, member)
const struct column USER_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id), .shape = "string" },
	{ "name", "name", COLUMN_TEXT, COLUMN_INSERT, AT(name) },
	{ "isInstanceAdmin", "CASE WHEN r.role IS NULL THEN 0 ELSE 1 END", COLUMN_BOOL, 0,
	  AT(is_admin) },
	{ "disabled", "disabled", COLUMN_BOOL, COLUMN_WRITE, AT(disabled) },
	COLUMN_TIMES(struct user),
	{ 0 },
};
static const struct row_kind USER = { "User", sizeof(struct user), USER_COLUMNS };

#define USER_SELECT                                                                                \
	"SELECT {u.*} FROM users u LEFT JOIN instance_user_roles r"                                \
	" ON r.user_id = u.id AND r.role = 'instance_admin'"
SQL_OF(USER_GET, USER_COLUMNS, USER_SELECT " WHERE u.id = $1");
SQL_OF(USER_LIST, USER_COLUMNS, USER_SELECT " ORDER BY u.created_at, u.id LIMIT 1000");
SQL_OF(USER_INSERT, USER_COLUMNS,
       "INSERT INTO users ({insert}) VALUES ({values}) ON CONFLICT (name) DO NOTHING");
SQL_OF(USER_UPDATE, USER_COLUMNS, "UPDATE users SET {set} WHERE id = $1");
SQL(USER_MAKE_ADMIN, "INSERT INTO instance_user_roles (user_id, role, created_at)"
		     " VALUES ($1, 'instance_admin', $2) ON CONFLICT (user_id, role) DO NOTHING");
SQL(USER_UNMAKE_ADMIN,
    "DELETE FROM instance_user_roles WHERE user_id = $1 AND role = 'instance_admin'");

void user_clear(struct user *user)
{
	row_clear(&USER, user);
}

json_t *user_json(const struct user *user)
{
	return row_json(&USER, user);
}

int user_get(struct db *db, const char *id, struct user *out, struct error *err)
{
	return row_get(db, &USER, &USER_GET, out, err, B_TEXT(id));
}

int user_get_tx(struct tx *tx, const char *id, struct user *out, struct error *err)
{
	return row_get_tx(tx, &USER, &USER_GET, out, err, B_TEXT(id));
}

json_t *user_list(struct db *db, struct error *err)
{
	return row_list(db, &USER, &USER_LIST, err);
}

static int insert_user(struct tx *tx, void *arg, struct error *err)
{
	const struct user *row = arg;
	int64_t n = row_insert_tx(tx, &USER_INSERT, row, err);

	if (n < 0)
		return -1;
	if (n == 0)
		return error_set(err, ERR_CONFLICT, "A user named \"%s\" exists already",
				 row->name);
	if (row->is_admin &&
	    tx_exec(tx, &USER_MAKE_ADMIN, err, B_TEXT(row->id), B_INT(row->created_at)) < 0)
		return -1;
	return 0;
}

int user_create(struct db *db, struct clock *clock, const char *name, bool is_admin,
		struct user *out, struct error *err)
{
	_cleanup_user_ struct user row = { .is_admin = is_admin };

	row.name = name_trimmed("A user's name", name, USER_NAME_MAX, err);
	if (!row.name)
		return -1;
	id_new(row.id);
	row.created_at = row.updated_at = clock_now(clock);
	if (DB_WRITE(db, "user.create", insert_user, &row, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

struct user_change {
	const char *id;
	const bool *disabled, *is_admin;
	int64_t now;
	struct user *out;
};

static int change_user(struct tx *tx, void *arg, struct error *err)
{
	const struct user_change *change = arg;
	_cleanup_user_ struct user row = { 0 };

	if (user_get_tx(tx, change->id, &row, err) < 0)
		return -1;

	bool is_admin = change->is_admin ? *change->is_admin : row.is_admin;

	row.disabled = change->disabled ? *change->disabled : row.disabled;
	row.updated_at = change->now;
	if (row_update_tx(tx, &USER_UPDATE, &row, err) < 0)
		return -1;
	if (is_admin != row.is_admin &&
	    (is_admin ? tx_exec(tx, &USER_MAKE_ADMIN, err, B_TEXT(row.id), B_INT(change->now))
		      : tx_exec(tx, &USER_UNMAKE_ADMIN, err, B_TEXT(row.id))) < 0)
		return -1;
	user_clear(change->out);
	return user_get_tx(tx, change->id, change->out, err);
}

int user_update(struct db *db, struct clock *clock, const char *id, const bool *disabled,
		const bool *is_admin, struct user *out, struct error *err)
{
	struct user_change change = { id, disabled, is_admin, clock_now(clock), out };

	return DB_WRITE(db, "user.update", change_user, &change, err);
}
