#include "auth/user.h"

#include "record/row.h"

#define USER_NAME_MAX 100
#define USER_COLUMNS "u.id, u.name, u.disabled, r.role, u.created_at, u.updated_at"
#define USER_FROM                                                                                  \
	" FROM users u LEFT JOIN instance_user_roles r"                                            \
	" ON r.user_id = u.id AND r.role = 'instance_admin'"

SQL(USER_GET, "SELECT " USER_COLUMNS USER_FROM " WHERE u.id = $1");
SQL(USER_LIST, "SELECT " USER_COLUMNS USER_FROM " ORDER BY u.created_at, u.id LIMIT 1000");
SQL(USER_INSERT, "INSERT INTO users (id, name, disabled, created_at, updated_at)"
		 " VALUES ($1, $2, 0, $3, $3) ON CONFLICT (name) DO NOTHING");
SQL(USER_UPDATE, "UPDATE users SET disabled = $2, updated_at = $3 WHERE id = $1");
SQL(USER_MAKE_ADMIN, "INSERT INTO instance_user_roles (user_id, role, created_at)"
		     " VALUES ($1, 'instance_admin', $2) ON CONFLICT (user_id, role) DO NOTHING");
SQL(USER_UNMAKE_ADMIN,
    "DELETE FROM instance_user_roles WHERE user_id = $1 AND role = 'instance_admin'");

void user_clear(struct user *user)
{
	free(user->name);
	*user = (struct user){ 0 };
}

json_t *user_json(const struct user *user)
{
	json_t *o = json_object();

	json_put_str(o, "id", user->id);
	json_put_str(o, "name", user->name);
	json_put_bool(o, "isInstanceAdmin", user->is_admin);
	json_put_bool(o, "disabled", user->disabled);
	json_put_time(o, "createdAt", user->created_at);
	json_put_time(o, "updatedAt", user->updated_at);
	return o;
}

static int user_read(struct cursor *c, struct user *out, struct error *err)
{
	(void)err;
	*out = (struct user){
		.name = xstrdup(col_text(c, 1)),
		.disabled = col_int(c, 2) != 0,
		.is_admin = !col_is_null(c, 3),
		.created_at = col_int(c, 4),
		.updated_at = col_int(c, 5),
	};
	id_copy(out->id, col_text(c, 0));
	return 0;
}

ROW_KIND(USER, user, "User");

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
	int64_t n = tx_exec(tx, &USER_INSERT, err, B_TEXT(row->id), B_TEXT(row->name),
			    B_INT(row->created_at));

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

	bool disabled = change->disabled ? *change->disabled : row.disabled;
	bool is_admin = change->is_admin ? *change->is_admin : row.is_admin;

	if (tx_exec(tx, &USER_UPDATE, err, B_TEXT(row.id), B_BOOL(disabled), B_INT(change->now)) <
	    0)
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
