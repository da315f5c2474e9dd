#include "auth/subject.h"

#include "record/row.h"

SQL(SUBJECT_COMPANY_GET, "SELECT id FROM companies WHERE id = $1");
SQL(SUBJECT_ENVIRONMENT_GET, "SELECT company_id FROM environments WHERE id = $1");
SQL(SUBJECT_LEASE_GET, "SELECT l.company_id, NULL, NULL, p.driver FROM leases l"
		       " LEFT JOIN places p ON p.id = l.place_id WHERE l.id = $1");
SQL(SUBJECT_RUN_GET, "SELECT r.company_id, r.agent_id, r.status, p.driver FROM runs r"
		     " LEFT JOIN leases l ON l.id = r.lease_id"
		     " LEFT JOIN places p ON p.id = l.place_id WHERE r.id = $1");
SQL(SUBJECT_LEASE_PLACE, "SELECT p.config, p.metadata FROM leases l"
			 " JOIN places p ON p.id = l.place_id WHERE l.id = $1");
SQL(SUBJECT_RUN_PLACE, "SELECT p.config, p.metadata FROM runs r JOIN leases l ON l.id = r.lease_id"
		       " JOIN places p ON p.id = l.place_id WHERE r.id = $1");
SQL(SUBJECT_AGENT_GET, "SELECT company_id FROM agents WHERE id = $1");
SQL(SUBJECT_PROJECT_GET, "SELECT company_id FROM projects WHERE id = $1");
SQL(SUBJECT_ISSUE_GET, "SELECT company_id FROM issues WHERE id = $1");
SQL(SUBJECT_WORKSPACE_GET, "SELECT company_id FROM execution_workspaces WHERE id = $1");

static const struct {
	const char *label;
	const struct sql *sql;
	bool has_more; /* the columns behind the company's id */
} KINDS_OF_SUBJECT[SUBJECT_KINDS] = {
	[OF_COMPANY] = { "Company", &SUBJECT_COMPANY_GET, false },
	[OF_ENVIRONMENT] = { "Environment", &SUBJECT_ENVIRONMENT_GET, false },
	[OF_LEASE] = { "Environment lease", &SUBJECT_LEASE_GET, true },
	[OF_RUN] = { "Run", &SUBJECT_RUN_GET, true },
	[OF_AGENT] = { "Agent", &SUBJECT_AGENT_GET, false },
	[OF_PROJECT] = { "Project", &SUBJECT_PROJECT_GET, false },
	[OF_ISSUE] = { "Issue", &SUBJECT_ISSUE_GET, false },
	[OF_WORKSPACE] = { "Execution workspace", &SUBJECT_WORKSPACE_GET, false },
};

const char *subject_label(enum subject_kind kind)
{
	return KINDS_OF_SUBJECT[kind].label;
}

struct subject_query {
	enum subject_kind kind;
	const char *id;
	struct subject *out;
};

static int read_more(struct cursor *c, struct subject *out, struct error *err)
{
	const char *status = col_text(c, 2), *driver = col_text(c, 3);

	id_copy(out->agent_id, col_text(c, 1));
	if (status && !run_status_parse(status, &out->status))
		return unexpected_value(err, "run status", status);
	if (driver && !driver_kind_parse(driver, &out->driver))
		return unexpected_value(err, "driver", driver);
	return 0;
}

static int read_subject(struct tx *tx, void *arg, struct error *err)
{
	const struct subject_query *q = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	*q->out = (struct subject){ .driver = DRIVER_KIND_COUNT };
	if (tx_query(tx, &c, KINDS_OF_SUBJECT[q->kind].sql, err, B_TEXT(q->id)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "%s not found", subject_label(q->kind));
	id_copy(q->out->company_id, col_text(&c, 0));
	return KINDS_OF_SUBJECT[q->kind].has_more ? read_more(&c, q->out, err) : 0;
}

int subject_get(struct db *db, enum subject_kind kind, const char *id, struct subject *out,
		struct error *err)
{
	struct subject_query q = { kind, id, out };

	return db_read(db, read_subject, &q, err);
}

struct place_query {
	enum subject_kind kind;
	const char *id;
	json_t **config, **metadata;
};

static int read_place(struct tx *tx, void *arg, struct error *err)
{
	const struct place_query *q = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	const struct sql *sql = q->kind == OF_LEASE ? &SUBJECT_LEASE_PLACE : &SUBJECT_RUN_PLACE;
	_cleanup_json_ json_t *config = NULL, *metadata = NULL;
	int r;

	if (tx_query(tx, &c, sql, err, B_TEXT(q->id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r <= 0)
		return r;
	if (col_json(&c, 0, "place config", &config, err) < 0 ||
	    col_json(&c, 1, "place metadata", &metadata, err) < 0)
		return -1;
	json_decref(*q->config);
	json_decref(*q->metadata);
	*q->config = steal(config);
	*q->metadata = steal(metadata);
	return 0;
}

int subject_place(struct db *db, enum subject_kind kind, const char *id, json_t **config,
		  json_t **metadata, struct error *err)
{
	struct place_query q = { kind, id, config, metadata };

	*config = *metadata = NULL;
	return db_read(db, read_place, &q, err);
}
