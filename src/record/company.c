#include "record/record.h"

#include <ctype.h>
#include "base/text.h"
#include "record/activity.h"
#include "record/environment.h"
#include "record/member.h"
#include "record/row.h"

#define COMPANY_NAME_MAX 100
#define PREFIX_MAX 10

#define AT(member) .offset = offsetof(struct company, member)
const struct column COMPANY_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "name", "name", COLUMN_TEXT, COLUMN_WRITE, AT(name) },
	{ "status", "status", COLUMN_WORD, COLUMN_WRITE | COLUMN_PATCH, AT(status),
	  .words = company_status_names },
	{ "issuePrefix", "issue_prefix", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE,
	  AT(issue_prefix), .summary = "What the names of its issues begin with" },
	{ "issueCounter", "issue_counter", COLUMN_INT, 0, AT(issue_counter) },
	COLUMN_TIMES(struct company),
	{ 0 },
};
static const struct row_kind COMPANY = { "Company", sizeof(struct company), COMPANY_COLUMNS };

SQL_OF(COMPANY_GET, COMPANY_COLUMNS, "SELECT {*} FROM companies WHERE id = $1");
SQL_OF(COMPANY_GET_BY_NAME, COMPANY_COLUMNS, "SELECT {*} FROM companies WHERE name = $1");
SQL_OF(COMPANY_LIST, COMPANY_COLUMNS,
       "SELECT {*} FROM companies ORDER BY created_at, id LIMIT 1000");
SQL_OF(COMPANY_LIST_OF_USER, COMPANY_COLUMNS,
       "SELECT {*} FROM companies WHERE id IN"
       " (SELECT company_id FROM company_memberships"
       " WHERE principal_type = 'user' AND principal_id = $1"
       " AND status = 'active') ORDER BY created_at, id LIMIT 1000");
SQL_OF(COMPANY_INSERT, COMPANY_COLUMNS,
       "INSERT INTO companies ({insert}) VALUES ({values}) ON CONFLICT DO NOTHING");
SQL_OF(COMPANY_UPDATE, COMPANY_COLUMNS, "UPDATE companies SET {set} WHERE id = $1");
SQL(COMPANY_EXISTS, "SELECT 1 FROM companies WHERE id = $1");
SQL(COMPANY_WORKS, "SELECT status FROM companies WHERE id = $1");
SQL(COMPANY_PREFIX_TAKEN, "SELECT 1 FROM companies WHERE issue_prefix = $1 AND id <> $2");
SQL(COMPANY_NAME_TAKEN, "SELECT 1 FROM companies WHERE name = $1 AND id <> $2");
#define NAME                                                                                       \
	.name = "name", .type = FIELD_STRING, .min = 1, .max = COMPANY_NAME_MAX,                   \
	.summary = "What people call the company; unique"
#define ISSUE_PREFIX                                                                               \
	{                                                                                          \
		.name = "issuePrefix", .type = FIELD_STRING, .min = 1, .max = PREFIX_MAX,          \
		.summary = "What the names of its issues begin with; unique"                       \
	}

const struct field COMPANY_FIELDS[] = {
	{ NAME, .flags = FIELD_REQUIRED | FIELD_NONBLANK | FIELD_TRIM },
	ISSUE_PREFIX,
	{ 0 },
};
const struct field COMPANY_PATCH_FIELDS[] = {
	{ NAME, .flags = FIELD_NONBLANK | FIELD_TRIM },
	ISSUE_PREFIX,
	{ .name = "status",
	  .type = FIELD_STRING,
	  .one_of = company_status_names,
	  .summary = "Paused and archived ones begin no runs" },
	{ 0 },
};

const struct actor ACTOR_SYSTEM = { .type = "system", .id = "system" };

void company_clear(struct company *company)
{
	row_clear(&COMPANY, company);
}

json_t *company_json(const struct company *company)
{
	return row_json(&COMPANY, company);
}

int company_get(struct db *db, const char *id, struct company *out, struct error *err)
{
	return row_get(db, &COMPANY, &COMPANY_GET, out, err, B_TEXT(id));
}

int company_get_by_name(struct db *db, const char *name, struct company *out, struct error *err)
{
	return row_get(db, &COMPANY, &COMPANY_GET_BY_NAME, out, err, B_TEXT(name));
}

json_t *company_list(struct db *db, struct error *err)
{
	return row_list(db, &COMPANY, &COMPANY_LIST, err);
}

json_t *company_list_of_user(struct db *db, const char *user_id, struct error *err)
{
	return row_list(db, &COMPANY, &COMPANY_LIST_OF_USER, err, B_TEXT(user_id));
}

int company_exists_tx(struct tx *tx, const char *id, struct error *err)
{
	int r = row_exists_tx(tx, &COMPANY_EXISTS, err, B_TEXT(id));

	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Company not found");
	return r < 0 ? -1 : 0;
}

int company_works_tx(struct tx *tx, const char *id, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	if (tx_query(tx, &c, &COMPANY_WORKS, err, B_TEXT(id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "Company not found");
	if (!streq(col_text(&c, 0), company_status_name(COMPANY_STATUS_ACTIVE)))
		return error_set(err, ERR_CONFLICT, "the company is %s: it begins no new work",
				 col_text(&c, 0));
	return 0;
}

static int write_activity(struct tx *tx, const struct company *row, int64_t now,
			  const struct actor *actor, const char *action, json_t *details,
			  struct error *err)
{
	return activity_write_tx(tx, now,
				 &(struct activity){ .company_id = row->id,
						     .actor = actor,
						     .action = action,
						     .entity_type = "company",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

/* Capital letters and digits, a letter first, so that ACM-7 can be told from other words. */
static int check_prefix(const char *prefix, struct error *err)
{
	size_t len = strspn(prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");

	if (!isupper((unsigned char)prefix[0]) || prefix[len] || len > PREFIX_MAX)
		return error_set(
			err, ERR_UNPROCESSABLE,
			"issuePrefix must be 1 to %d capital letters and digits, beginning "
			"with a letter",
			PREFIX_MAX);
	return 0;
}

/* A path takes a company's name in place of its id, so that a name must not look like one. */
static int check_name(const char *name, struct error *err)
{
	if (id_is_valid(name))
		return error_set(err, ERR_UNPROCESSABLE, "A company's name cannot be a UUID");
	return 0;
}

/* The first letters of the name; the name may have none that can be used. */
static void prefix_of_name(const char *name, char out[4])
{
	size_t len = 0;

	for (; *name && len < 3; name++) {
		unsigned char c = (unsigned char)*name;

		if (c < 0x80 && (isalpha(c) || (len && isdigit(c))))
			out[len++] = (char)toupper(c);
	}
	out[len] = '\0';
	if (!len)
		memcpy(out, "CO", sizeof("CO"));
}

#define PREFIX_TRIES 9

/* The derived prefix; with a number behind it when others have it, and something odd at last. */
static int free_prefix_tx(struct tx *tx, const struct company *row, char out[PREFIX_MAX + 1],
			  struct error *err)
{
	char base[4], odd[ID_SIZE];

	prefix_of_name(row->name, base);
	snprintf(out, PREFIX_MAX + 1, "%s", base);
	for (int i = 2; i <= PREFIX_TRIES + 1; i++) {
		int taken =
			row_exists_tx(tx, &COMPANY_PREFIX_TAKEN, err, B_TEXT(out), B_TEXT(row->id));

		if (taken <= 0)
			return taken;
		snprintf(out, PREFIX_MAX + 1, "%s%d", base, i);
	}
	id_new(odd);
	for (char *c = odd; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	snprintf(out, PREFIX_MAX + 1, "%s%.6s", base, odd + ID_SIZE - 7);
	return 0;
}

struct company_creation {
	const struct writer *writer;
	struct company *row;
	bool derive_prefix;
};

static int refuse_taken(const struct company *row, bool name_taken, struct error *err)
{
	if (name_taken)
		return error_set(err, ERR_CONFLICT, "A company named \"%s\" exists already",
				 row->name);
	return error_set(err, ERR_CONFLICT, "another company's issues begin with \"%s\"",
			 row->issue_prefix);
}

static int insert_company(struct tx *tx, void *arg, struct error *err)
{
	struct company_creation *creation = arg;
	const struct actor *actor = creation->writer->actor;
	const json_t *sandbox = creation->writer->sandbox;
	struct company *row = creation->row;
	_cleanup_json_ json_t *details = json_object();
	int64_t n;

	if (creation->derive_prefix) {
		char prefix[PREFIX_MAX + 1];

		if (free_prefix_tx(tx, row, prefix, err) < 0)
			return -1;
		free(row->issue_prefix);
		row->issue_prefix = xstrdup(prefix);
	}
	n = row_insert_tx(tx, &COMPANY_INSERT, row, err);
	if (n < 0)
		return -1;
	if (n == 0) {
		int taken = row_exists_tx(tx, &COMPANY_NAME_TAKEN, err, B_TEXT(row->name),
					  B_TEXT(row->id));

		return taken < 0 ? -1 : refuse_taken(row, taken > 0, err);
	}
	if (environment_ensure_local_tx(tx, row->created_at, row->id, err) < 0 ||
	    (sandbox &&
	     environment_ensure_sandbox_tx(tx, row->created_at, row->id, sandbox, err) < 0))
		return -1;
	/* Whoever makes a company as a person owns it. */
	if (actor->kind == ACTOR_USER &&
	    membership_add_owner_tx(tx, row->created_at, row->id, actor->id, err) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	return write_activity(tx, row, row->created_at, actor, "company.created", details, err);
}

int company_create(const struct writer *writer, const char *name, const char *issue_prefix,
		   struct company *out, struct error *err)
{
	_cleanup_(company_clear) struct company row = { 0 };
	struct company_creation creation = { writer, &row, !issue_prefix };

	row.name = name_trimmed("A company's name", name, COMPANY_NAME_MAX, err);
	if (!row.name || check_name(row.name, err) < 0 ||
	    (issue_prefix && check_prefix(issue_prefix, err) < 0))
		return -1;
	new_record_id(writer, row.id);
	row.issue_prefix = xstrdup(issue_prefix);
	row.created_at = row.updated_at = clock_now(writer->clock);
	if (DB_WRITE(writer->db, "company.create", insert_company, &creation, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

struct company_change {
	const struct writer *writer;
	const char *id;
	const json_t *body;
	int64_t now;
	struct company row;
};

/* Names that have been given out stay, so the prefix can only change before the first. */
static int apply_prefix(struct company *row, const json_t *body, struct error *err)
{
	const char *prefix = json_str(body, "issuePrefix");

	if (!prefix || str_equal(prefix, row->issue_prefix))
		return 0;
	if (check_prefix(prefix, err) < 0)
		return -1;
	if (row->issue_counter > 0)
		return error_set(err, ERR_CONFLICT,
				 "the company has issues whose names begin with \"%s\"",
				 row->issue_prefix);
	free(row->issue_prefix);
	row->issue_prefix = xstrdup(prefix);
	return 0;
}

static int apply_body(struct company *row, const json_t *body, struct error *err)
{
	if (patch_name(&row->name, "A company's name", body, "name", COMPANY_NAME_MAX, err) < 0 ||
	    (json_str(body, "name") && check_name(row->name, err) < 0) ||
	    apply_prefix(row, body, err) < 0)
		return -1;
	row_patch(&COMPANY, row, body);
	return 0;
}

static int check_unique_tx(struct tx *tx, const struct company *row, struct error *err)
{
	int name = row_exists_tx(tx, &COMPANY_NAME_TAKEN, err, B_TEXT(row->name), B_TEXT(row->id));
	int prefix;

	if (name)
		return name < 0 ? -1 : refuse_taken(row, true, err);
	prefix = row_exists_tx(tx, &COMPANY_PREFIX_TAKEN, err, B_TEXT(row->issue_prefix),
			       B_TEXT(row->id));
	if (prefix)
		return prefix < 0 ? -1 : refuse_taken(row, false, err);
	return 0;
}

static int update_company(struct tx *tx, void *arg, struct error *err)
{
	struct company_change *change = arg;
	struct company *row = &change->row;
	_cleanup_json_ json_t *details = changed_fields(change->body);

	company_clear(row);
	if (row_get_tx(tx, &COMPANY, &COMPANY_GET, row, err, B_TEXT(change->id)) < 0 ||
	    apply_body(row, change->body, err) < 0 || check_unique_tx(tx, row, err) < 0)
		return -1;
	row->updated_at = change->now;
	if (row_update_tx(tx, &COMPANY_UPDATE, row, err) < 0)
		return -1;
	if (json_str(change->body, "status"))
		json_put_str(details, "status", company_status_name(row->status));
	return write_activity(tx, row, change->now, change->writer->actor, "company.updated",
			      details, err);
}

int company_update(const struct writer *writer, const char *id, const json_t *body,
		   struct company *out, struct error *err)
{
	struct company_change change = {
		.writer = writer, .id = id, .body = body, .now = clock_now(writer->clock)
	};
	int r = DB_WRITE(writer->db, "company.update", update_company, &change, err);

	if (r == 0)
		hand_over(out, change.row);
	company_clear(&change.row);
	return r;
}
