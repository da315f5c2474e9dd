#include "record/record.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"
#include "record/selection.h"
#include "record/trust.h"

#define ROLE_MAX 50
#define CEO "ceo"

#define AT(member) .offset = offsetof(struct agent, member)
const struct column AGENT_COLUMNS[] = {
	{ "id", "id", COLUMN_ID, COLUMN_INSERT, AT(id) },
	{ "companyId", "company_id", COLUMN_ID, COLUMN_INSERT, AT(company_id) },
	{ "name", "name", COLUMN_TEXT, COLUMN_WRITE, AT(name) },
	{ "role", "role", COLUMN_TEXT, COLUMN_WRITE, AT(role) },
	{ "title", "title", COLUMN_TEXT, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(title) },
	{ "status", "status", COLUMN_WORD, COLUMN_WRITE | COLUMN_PATCH, AT(status),
	  .words = agent_status_names },
	{ "adapterType", "adapter_type", COLUMN_TEXT, COLUMN_WRITE, AT(adapter_type) },
	{ "adapterConfig", "adapter_config", COLUMN_JSON, COLUMN_WRITE | COLUMN_NULLABLE,
	  AT(adapter_config) },
	{ "runtimeConfig", "runtime_config", COLUMN_JSON,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(runtime_config) },
	{ "permissions", "permissions", COLUMN_JSON, COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH,
	  AT(permissions) },
	{ "defaultEnvironmentId", "default_environment_id", COLUMN_ID,
	  COLUMN_WRITE | COLUMN_NULLABLE | COLUMN_PATCH, AT(default_environment_id),
	  .summary = "Where its runs go" },
	{ "configRedacted", NULL, COLUMN_BOOL, COLUMN_VIEW,
	  .summary = "Its settings are not for the reader" },
	COLUMN_TIMES(struct agent),
	COLUMN_TRUST(struct agent),
	{ 0 },
};
static const struct row_kind AGENT = { "Agent", sizeof(struct agent), AGENT_COLUMNS };

SQL_OF(AGENT_GET, AGENT_COLUMNS, "SELECT {*} FROM agents WHERE id = $1");
SQL_OF(AGENT_LIST, AGENT_COLUMNS,
       "SELECT {*} FROM agents WHERE company_id = $1"
       " AND (created_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
       " AND (CAST($5 AS TEXT) IS NULL OR status = $5)"
       " AND (CAST($6 AS TEXT) IS NULL OR adapter_type = $6)"
       " ORDER BY created_at, id LIMIT CAST($4 AS BIGINT)");
SQL_OF(AGENT_INSERT, AGENT_COLUMNS, "INSERT INTO agents ({insert}) VALUES ({values})");
SQL_OF(AGENT_UPDATE, AGENT_COLUMNS, "UPDATE agents SET {set} WHERE id = $1");
SQL(AGENT_USERS,
    "SELECT (SELECT COUNT(*) FROM runs WHERE agent_id = $1 AND company_id = $2"
    " AND " RUNS_UNFINISHED "),"
    " (SELECT COUNT(*) FROM leases WHERE agent_id = $1 AND company_id = $2 AND " LEASES_OPEN ")");
SQL(AGENT_DELETE, "DELETE FROM agents WHERE id = $1");
/* What it was in its company refers to it by a bare id, so nothing else would remove it. */
SQL(AGENT_DELETE_MEMBERSHIP,
    "DELETE FROM company_memberships WHERE principal_type = 'agent' AND principal_id = $1");
SQL(AGENT_DELETE_GRANTS,
    "DELETE FROM principal_permission_grants WHERE principal_type = 'agent' AND principal_id = $1");

#define NAME                                                                                       \
	.name = "name", .type = FIELD_STRING, .min = 1, .max = NAME_MAX_BYTES,                     \
	.summary = "What people call the agent"
static const struct field HEARTBEAT_FIELDS[] = {
	{ .name = "maxConcurrentRuns",
	  .type = FIELD_INT,
	  .min = 1,
	  .max = 1000,
	  .summary = "Runs of the agent at a time" },
	{ 0 },
};
static const struct field RUNTIME_FIELDS[] = {
	{ .name = "heartbeat", .type = FIELD_OBJECT, .fields = HEARTBEAT_FIELDS },
	{ 0 },
};
static const struct field PERMISSION_FIELDS[] = {
	{ .name = "canCreateAgents", .type = FIELD_BOOL, .summary = "It may make other agents" },
	{ 0 },
};

/* What making and changing an agent have in common. */
#define OTHER_FIELDS                                                                               \
	{ .name = "adapterType",                                                                   \
	  .type = FIELD_STRING,                                                                    \
	  .flags = FIELD_NONBLANK,                                                                 \
	  .min = 1,                                                                                \
	  .max = 100,                                                                              \
	  .summary = "How the agent is run; `process` unless given" },                             \
		{ .name = "adapterConfig",                                                         \
		  .type = FIELD_OBJECT,                                                            \
		  .summary = "Settings of the adapter" },                                          \
		{ .name = "runtimeConfig",                                                         \
		  .type = FIELD_OBJECT,                                                            \
		  .fields = RUNTIME_FIELDS,                                                        \
		  .summary = "Settings of its runs" },                                             \
		{ .name = "permissions",                                                           \
		  .type = FIELD_OBJECT,                                                            \
		  .fields = PERMISSION_FIELDS,                                                     \
		  .summary = "What the agent may do: canCreateAgents" },                           \
		{ .name = "defaultEnvironmentId",                                                  \
		  .type = FIELD_UUID,                                                              \
		  .flags = FIELD_NULLABLE,                                                         \
		  .summary = "Where it runs when nothing nearer chooses" },                        \
		{ .name = "role",                                                                  \
		  .type = FIELD_STRING,                                                            \
		  .flags = FIELD_NONBLANK,                                                         \
		  .min = 1,                                                                        \
		  .max = ROLE_MAX,                                                                 \
		  .summary = "`general` unless given; `ceo` may make agents" },                    \
		{ .name = "title",                                                                 \
		  .type = FIELD_STRING,                                                            \
		  .flags = FIELD_NULLABLE,                                                         \
		  .max = NAME_MAX_BYTES,                                                           \
		  .summary = "For people" },                                                       \
	{                                                                                          \
		.name = "status", .type = FIELD_STRING, .one_of = agent_status_names,              \
		.summary = "`idle` unless given; paused, pending and terminated ones do not run"   \
	}

const struct field AGENT_FIELDS[] = {
	{ NAME, .flags = FIELD_REQUIRED | FIELD_NONBLANK },
	OTHER_FIELDS,
	{ 0 },
};
const struct field AGENT_PATCH_FIELDS[] = {
	{ NAME, .flags = FIELD_NONBLANK },
	OTHER_FIELDS,
	{ .name = "replaceAdapterConfig",
	  .type = FIELD_BOOL,
	  .summary = "adapterConfig is the whole of it, not keys to lay over those there are" },
	{ 0 },
};

void agent_clear(struct agent *agent)
{
	row_clear(&AGENT, agent);
}

json_t *agent_json(const struct agent *agent)
{
	return row_json(&AGENT, agent);
}

int agent_get(struct db *db, const char *id, struct agent *out, struct error *err)
{
	return row_get(db, &AGENT, &AGENT_GET, out, err, B_TEXT(id));
}

int agent_get_tx(struct tx *tx, const char *id, struct agent *out, struct error *err)
{
	return row_get_tx(tx, &AGENT, &AGENT_GET, out, err, B_TEXT(id));
}

int agent_works_tx(struct tx *tx, const char *id, struct error *err)
{
	_cleanup_(agent_clear) struct agent agent = { 0 };

	if (agent_get_tx(tx, id, &agent, err) < 0)
		return -1;
	switch (agent.status) {
	case AGENT_STATUS_PAUSED:
	case AGENT_STATUS_TERMINATED:
	case AGENT_STATUS_PENDING_APPROVAL:
		return error_set(err, ERR_CONFLICT, "agent \"%s\" is %s: it begins no runs",
				 agent.name, agent_status_name(agent.status));
	default:
		return 0;
	}
}

json_t *agent_list(struct db *db, struct list_query *query, struct error *err)
{
	return row_page(db, &AGENT, &AGENT_LIST, query, err, B_TEXT(query->status),
			B_TEXT(query->adapter_type));
}

/*
 * Keys of adapterConfig are laid over those there are as long as the adapter stays; another adapter
 * starts from nothing.
 */
static void apply_adapter(struct agent *row, const json_t *body)
{
	const char *type = json_str_nonblank(body, "adapterType");
	json_t *given = json_object_at(body, "adapterConfig");
	bool other = type && !str_equal(type, row->adapter_type);

	if (other) {
		free(row->adapter_type);
		row->adapter_type = xstrdup(type);
	}
	if (other || (given && json_bool(body, "replaceAdapterConfig", false))) {
		json_decref(row->adapter_config);
		row->adapter_config = json_object();
	}
	if (given)
		json_object_update(row->adapter_config, given);
}

static int apply_body(struct agent *row, const json_t *body, struct error *err)
{
	if (patch_name(&row->name, "An agent's name", body, "name", NAME_MAX_BYTES, err) < 0 ||
	    patch_name(&row->role, "An agent's role", body, "role", ROLE_MAX, err) < 0)
		return -1;
	apply_adapter(row, body);
	row_patch(&AGENT, row, body);
	return 0;
}

struct agent_writing {
	const struct writer *writer;
	const char *id; /* NULL: `row` is to be made */
	const json_t *body;
	int64_t now;
	struct agent row;
};

/* Its environment is looked at again when the adapter changes: not every adapter can use it. */
static int check_environment(struct tx *tx, const struct agent_writing *w, const char *former,
			     struct error *err)
{
	const struct agent *row = &w->row;

	if (!json_object_get(w->body, "defaultEnvironmentId") &&
	    !json_object_get(w->body, "adapterType"))
		return 0;
	if (selection_guard_tx(tx, w->writer, row->company_id, row->default_environment_id,
			       drivers_for_adapter(w->writer, row->adapter_type), err) < 0)
		return -1;
	return selection_host_tx(tx, w->writer, former, row->default_environment_id,
				 "defaultEnvironmentId", err);
}

/* ---- an agent that makes agents gives them nothing wider than it has ---- */

/* Keys of an adapterConfig that neither name a program nor reach its environment. */
static bool is_for_everybody(const char *key)
{
	static const char *const KEYS[] = { "model", "promptTemplate", "timeoutSec" };

	for (size_t i = 0; i < ARRAY_SIZE(KEYS); i++) {
		if (streq(key, KEYS[i]))
			return true;
	}
	return false;
}

static void keep_own_keys(json_t *wanted, const json_t *own, bool (*is_free)(const char *key))
{
	const char *key;
	json_t *value;
	void *next;

	json_object_foreach_safe(wanted, next, key, value)
	{
		const json_t *mine = json_object_get(own, key);

		if (!(is_free && is_free(key)) && !json_is_false(value) &&
		    !(mine && json_equal(mine, value)))
			json_object_del(wanted, key);
	}
}

/* The new agent as far as its maker may make it so; what is wanted beyond that is refused. */
static json_t *as_its_maker(const struct agent *row, const struct agent *maker)
{
	_cleanup_json_ json_t *shared = agent_json(row);
	json_t *allowed = json_deep_copy(shared);

	if (!streq(row->adapter_type, "process"))
		json_put_str(allowed, "adapterType", maker->adapter_type);
	keep_own_keys(json_object_at(allowed, "adapterConfig"), maker->adapter_config,
		      is_for_everybody);
	keep_own_keys(json_object_at(allowed, "runtimeConfig"), maker->runtime_config, NULL);
	keep_own_keys(json_object_at(allowed, "permissions"), maker->permissions, NULL);
	json_put_id(allowed, "defaultEnvironmentId", maker->default_environment_id);
	if (streq(row->role, CEO) && !json_bool(maker->permissions, "canCreateAgents", false))
		json_put_str(allowed, "role", maker->role);
	return allowed;
}

static int compare_with_maker(struct tx *tx, struct agent_writing *w, json_t **allowed,
			      struct error *err)
{
	_cleanup_(agent_clear) struct agent maker = { 0 };

	*allowed = NULL;
	if (!actor_is_agent(w->writer->actor))
		return 0;
	if (agent_get_tx(tx, w->writer->actor->agent_id, &maker, err) < 0)
		return -1;
	if (!id_is_set(w->row.default_environment_id))
		id_copy(w->row.default_environment_id, maker.default_environment_id);
	*allowed = as_its_maker(&w->row, &maker);
	return 0;
}

static int note(struct tx *tx, const struct agent_writing *w, const char *action, json_t *details,
		struct error *err)
{
	return activity_write_tx(tx, w->now,
				 &(struct activity){ .company_id = w->row.company_id,
						     .actor = w->writer->actor,
						     .action = action,
						     .entity_type = "agent",
						     .entity_id = w->row.id,
						     .details = details },
				 err);
}

static int insert_agent(struct tx *tx, void *arg, struct error *err)
{
	struct agent_writing *w = arg;
	_cleanup_json_ json_t *details = json_object(), *allowed = NULL, *after = NULL;

	if (company_exists_tx(tx, w->row.company_id, err) < 0 ||
	    compare_with_maker(tx, w, &allowed, err) < 0)
		return -1;
	after = agent_json(&w->row);
	if (deciding_check(w->writer, DECIDING_AGENT, allowed, after, err) < 0 ||
	    check_environment(tx, w, NULL, err) < 0)
		return -1;
	deciding_note(w->writer->actor, DECIDING_AGENT, NULL, w->body, after, &w->row.trust);
	if (row_insert_tx(tx, &AGENT_INSERT, &w->row, err) < 0)
		return -1;
	json_put_str(details, "name", w->row.name);
	json_put_str(details, "adapterType", w->row.adapter_type);
	return note(tx, w, "agent.created", details, err);
}

static json_t *first_permissions(const struct agent *row)
{
	json_t *permissions = json_object();

	if (streq(row->role, CEO))
		json_put_bool(permissions, "canCreateAgents", true);
	return permissions;
}

int agent_create(const struct writer *writer, const char *company_id, const json_t *body,
		 struct agent *out, struct error *err)
{
	struct agent_writing w = { .writer = writer,
				   .body = body,
				   .now = clock_now(writer->clock) };
	struct agent *row = &w.row;
	int r;

	new_record_id(writer, row->id);
	id_copy(row->company_id, company_id);
	row->adapter_type = xstrdup("process");
	row->role = xstrdup("general");
	row->status = AGENT_STATUS_IDLE;
	row->adapter_config = json_object();
	row->runtime_config = json_object();
	row->created_at = row->updated_at = w.now;
	r = apply_body(row, body, err);
	if (!row->permissions)
		row->permissions = first_permissions(row);
	if (r == 0)
		r = DB_WRITE(writer->db, "agent.create", insert_agent, &w, err);
	if (r == 0)
		hand_over(out, w.row);
	agent_clear(row);
	return r;
}

static int update_agent(struct tx *tx, void *arg, struct error *err)
{
	struct agent_writing *w = arg;
	_cleanup_json_ json_t *details = changed_fields(w->body), *before = NULL, *after = NULL;

	agent_clear(&w->row);
	if (agent_get_tx(tx, w->id, &w->row, err) < 0)
		return -1;
	after = agent_json(&w->row);
	before = json_deep_copy(after);
	json_decref(after);
	after = NULL;
	if (apply_body(&w->row, w->body, err) < 0)
		return -1;
	after = agent_json(&w->row);
	if (deciding_check(w->writer, DECIDING_AGENT, before, after, err) < 0 ||
	    check_environment(tx, w, json_str(before, "defaultEnvironmentId"), err) < 0)
		return -1;
	deciding_note(w->writer->actor, DECIDING_AGENT, before, w->body, after, &w->row.trust);
	w->row.updated_at = w->now;
	if (row_update_tx(tx, &AGENT_UPDATE, &w->row, err) < 0)
		return -1;
	if (json_str(w->body, "status"))
		json_put_str(details, "status", agent_status_name(w->row.status));
	return note(tx, w, "agent.updated", details, err);
}

int agent_update(const struct writer *writer, const char *id, const json_t *body, struct agent *out,
		 struct error *err)
{
	struct agent_writing w = {
		.writer = writer, .id = id, .body = body, .now = clock_now(writer->clock)
	};
	int r = DB_WRITE(writer->db, "agent.update", update_agent, &w, err);

	if (r == 0)
		hand_over(out, w.row);
	agent_clear(&w.row);
	return r;
}

static int delete_agent(struct tx *tx, void *arg, struct error *err)
{
	struct agent_writing *w = arg;
	_cleanup_json_ json_t *details = json_object();

	agent_clear(&w->row);
	if (agent_get_tx(tx, w->id, &w->row, err) < 0 ||
	    unused_check_tx(tx, &AGENT_USERS, "The agent", w->id, w->row.company_id, err) < 0 ||
	    tx_exec(tx, &AGENT_DELETE_GRANTS, err, B_TEXT(w->id)) < 0 ||
	    tx_exec(tx, &AGENT_DELETE_MEMBERSHIP, err, B_TEXT(w->id)) < 0 ||
	    tx_exec(tx, &AGENT_DELETE, err, B_TEXT(w->id)) < 0)
		return -1;
	json_put_str(details, "name", w->row.name);
	return note(tx, w, "agent.deleted", details, err);
}

int agent_delete(const struct writer *writer, const char *id, struct agent *removed,
		 struct error *err)
{
	struct agent_writing w = { .writer = writer, .id = id, .now = clock_now(writer->clock) };
	int r = DB_WRITE(writer->db, "agent.delete", delete_agent, &w, err);

	if (r == 0)
		hand_over(removed, w.row);
	agent_clear(&w.row);
	return r;
}
