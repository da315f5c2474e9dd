#include "record/record.h"

#include "record/activity.h"
#include "record/row.h"

#define AGENT_COLUMNS                                                                              \
	"id, company_id, name, adapter_type, adapter_config, runtime_config, permissions,"         \
	" default_environment_id, created_at, updated_at"

SQL(AGENT_GET, "SELECT " AGENT_COLUMNS " FROM agents WHERE id = $1");
SQL(AGENT_LIST, "SELECT " AGENT_COLUMNS " FROM agents WHERE company_id = $1"
		" ORDER BY created_at, id LIMIT 1000");
SQL(AGENT_INSERT, "INSERT INTO agents (" AGENT_COLUMNS ")"
		  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)");

const struct field AGENT_FIELDS[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .flags = FIELD_REQUIRED | FIELD_NONBLANK,
	  .min = 1,
	  .max = NAME_MAX_BYTES,
	  .summary = "What people call the agent" },
	{ .name = "adapterType",
	  .type = FIELD_STRING,
	  .flags = FIELD_NONBLANK,
	  .min = 1,
	  .max = 100,
	  .summary = "How the agent is run; `process` unless given" },
	{ .name = "adapterConfig", .type = FIELD_OBJECT, .summary = "Settings of the adapter" },
	{ .name = "runtimeConfig", .type = FIELD_OBJECT, .summary = "Settings of its runs" },
	{ .name = "permissions", .type = FIELD_OBJECT, .summary = "What the agent may do" },
	{ .name = "defaultEnvironmentId",
	  .type = FIELD_UUID,
	  .flags = FIELD_NULLABLE,
	  .summary = "Where it runs when nothing nearer chooses" },
	{ 0 },
};

void agent_clear(struct agent *agent)
{
	free(agent->name);
	free(agent->adapter_type);
	json_decref(agent->adapter_config);
	json_decref(agent->runtime_config);
	json_decref(agent->permissions);
	*agent = (struct agent){ 0 };
}

json_t *agent_json(const struct agent *agent)
{
	json_t *o = json_object();

	json_put_str(o, "id", agent->id);
	json_put_str(o, "companyId", agent->company_id);
	json_put_str(o, "name", agent->name);
	json_put_str(o, "adapterType", agent->adapter_type);
	json_put_ref(o, "adapterConfig", agent->adapter_config);
	json_put_ref(o, "runtimeConfig", agent->runtime_config);
	json_put_ref(o, "permissions", agent->permissions);
	json_put_id(o, "defaultEnvironmentId", agent->default_environment_id);
	json_put_time(o, "createdAt", agent->created_at);
	json_put_time(o, "updatedAt", agent->updated_at);
	return o;
}

static int agent_read(struct cursor *c, struct agent *out, struct error *err)
{
	_cleanup_(agent_clear) struct agent row = { 0 };

	id_copy(row.id, col_text(c, 0));
	id_copy(row.company_id, col_text(c, 1));
	row.name = xstrdup(col_text(c, 2));
	row.adapter_type = xstrdup(col_text(c, 3));
	if (col_json(c, 4, "adapter config", &row.adapter_config, err) < 0 ||
	    col_json(c, 5, "runtime config", &row.runtime_config, err) < 0 ||
	    col_json(c, 6, "permissions", &row.permissions, err) < 0)
		return -1;
	id_copy(row.default_environment_id, col_text(c, 7));
	row.created_at = col_int(c, 8);
	row.updated_at = col_int(c, 9);
	hand_over(out, row);
	return 0;
}

ROW_KIND(AGENT, agent, "Agent");

int agent_get(struct db *db, const char *id, struct agent *out, struct error *err)
{
	return row_get(db, &AGENT, &AGENT_GET, out, err, B_TEXT(id));
}

int agent_get_tx(struct tx *tx, const char *id, struct agent *out, struct error *err)
{
	return row_get_tx(tx, &AGENT, &AGENT_GET, out, err, B_TEXT(id));
}

json_t *agent_list(struct db *db, const char *company_id, struct error *err)
{
	return row_list(db, &AGENT, &AGENT_LIST, err, B_TEXT(company_id));
}

struct agent_creation {
	const struct actor *actor;
	const struct agent *row;
};

static int insert_agent(struct tx *tx, void *arg, struct error *err)
{
	const struct agent_creation *creation = arg;
	const struct agent *row = creation->row;
	_cleanup_json_ json_t *details = json_object();
	_cleanup_free_ char *adapter_config = json_text(row->adapter_config);
	_cleanup_free_ char *runtime_config = json_text(row->runtime_config);
	_cleanup_free_ char *permissions = json_text(row->permissions);

	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    environment_reference_check_tx(tx, row->default_environment_id, row->company_id, err) <
		    0)
		return -1;
	if (tx_exec(tx, &AGENT_INSERT, err, B_TEXT(row->id), B_TEXT(row->company_id),
		    B_TEXT(row->name), B_TEXT(row->adapter_type), B_TEXT(adapter_config),
		    B_TEXT(runtime_config), B_TEXT(permissions), B_ID(row->default_environment_id),
		    B_INT(row->created_at)) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	json_put_str(details, "adapterType", row->adapter_type);
	return activity_write_tx(tx, row->created_at,
				 &(struct activity){ .company_id = row->company_id,
						     .actor = creation->actor,
						     .action = "agent.created",
						     .entity_type = "agent",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

int agent_create(struct db *db, struct clock *clock, const struct actor *actor,
		 const char *company_id, const json_t *body, struct agent *out, struct error *err)
{
	_cleanup_(agent_clear) struct agent row = { 0 };
	struct agent_creation creation = { actor, &row };
	const char *adapter_type = json_str_nonblank(body, "adapterType");

	row.name = name_trimmed("An agent's name", json_str(body, "name"), NAME_MAX_BYTES, err);
	if (!row.name)
		return -1;
	id_new(row.id);
	id_copy(row.company_id, company_id);
	id_copy(row.default_environment_id, json_str(body, "defaultEnvironmentId"));
	row.adapter_type = xstrdup(adapter_type ? adapter_type : "process");
	row.adapter_config = object_or_empty(body, "adapterConfig");
	row.runtime_config = object_or_empty(body, "runtimeConfig");
	row.permissions = object_or_empty(body, "permissions");
	row.created_at = row.updated_at = clock_now(clock);
	if (DB_WRITE(db, "agent.create", insert_agent, &creation, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}
