#include "record/environment.h"

#include "base/text.h"
#include "record/activity.h"
#include "record/row.h"
#include "record/trust.h"

SQL_OF(ENVIRONMENT_INSERT, ENVIRONMENT_COLUMNS,
       "INSERT INTO environments ({insert}) VALUES ({values})");
SQL_OF(ENVIRONMENT_UPDATE, ENVIRONMENT_COLUMNS, "UPDATE environments SET {set} WHERE id = $1");
SQL(ENVIRONMENT_OTHER_LOCAL, "SELECT 1 FROM environments"
			     " WHERE company_id = $1 AND driver = 'local' AND id <> $2");
SQL(ENVIRONMENT_SAME_NAME, "SELECT 1 FROM environments"
			   " WHERE company_id = $1 AND name = $2 AND id <> $3");

/* Names stay as they were written, so this only asks whether one would do. */
static int check_name(const char *name, struct error *err)
{
	_cleanup_free_ char *trimmed =
		name_trimmed("An environment's name", name, NAME_MAX_BYTES, err);

	if (!trimmed)
		return -1;
	if (strlen(name) > NAME_MAX_BYTES)
		return error_set(err, ERR_VALIDATION, "An environment's name is too long");
	return 0;
}

static int check_metadata(const json_t *metadata, struct error *err)
{
	const json_t *limit = json_object_get(metadata, "maxLeases");

	if (metadata && !json_is_object(metadata) && !json_is_null(metadata))
		return error_set(err, ERR_VALIDATION, "metadata must be an object or null");
	if (limit && (!json_is_integer(limit) || json_integer_value(limit) < 1))
		return error_set(err, ERR_UNPROCESSABLE,
				 "metadata.maxLeases must be a positive integer");
	return 0;
}

/*
 * A run that nothing sends elsewhere goes to the company's Local environment, and finding it
 * archived fails: so it never gets there.
 */
static int check_local_stays_active(enum driver_kind driver, enum environment_status status,
				    struct error *err)
{
	if (driver == DRIVER_LOCAL && status == ENVIRONMENT_ARCHIVED)
		return error_set(err, ERR_UNPROCESSABLE,
				 "the Local environment cannot be archived: every run for which no "
				 "other environment is chosen uses it");
	return 0;
}

static int check_one_local_tx(struct tx *tx, const struct environment *row, struct error *err)
{
	if (row->driver != DRIVER_LOCAL)
		return 0;

	int r = row_exists_tx(tx, &ENVIRONMENT_OTHER_LOCAL, err, B_TEXT(row->company_id),
			      B_TEXT(row->id));

	if (r > 0)
		return error_set(err, ERR_CONFLICT,
				 "the company has a Local environment already, and one is all it "
				 "can have");
	return r;
}

static int check_own_name_tx(struct tx *tx, const struct environment *row, struct error *err)
{
	int r = row_exists_tx(tx, &ENVIRONMENT_SAME_NAME, err, B_TEXT(row->company_id),
			      B_TEXT(row->name), B_TEXT(row->id));

	if (r > 0)
		return error_set(err, ERR_CONFLICT,
				 "the company has an environment named \"%s\" already: choose "
				 "another name",
				 row->name);
	return r;
}

static int write_activity(struct tx *tx, const struct environment *row, int64_t now,
			  const struct actor *actor, const char *action, json_t *details,
			  struct error *err)
{
	return activity_write_tx(tx, now,
				 &(struct activity){ .company_id = row->company_id,
						     .actor = actor,
						     .action = action,
						     .entity_type = "environment",
						     .entity_id = row->id,
						     .details = details },
				 err);
}

/* Driver local is this host: who may not use it neither makes nor changes what leads there. */
static int check_host(const struct actor *actor, const struct environment *row, struct error *err)
{
	if (row->driver == DRIVER_LOCAL && actor_trust(actor) != TRUST_LOCAL)
		return refuse_local(err);
	return 0;
}

int environment_changeable(const struct actor *actor, const struct environment *row,
			   struct error *err)
{
	if (actor_is_agent(actor))
		return error_set(err, ERR_FORBIDDEN,
				 "agents may make environments, and not change or delete them: "
				 "others may have chosen them as they are");
	return check_host(actor, row, err);
}

/* `merged`: a part of the config is what somebody else wrote. NULL patch: it is made. */
static void note_writer(struct environment *row, const struct environment_patch *patch,
			const struct actor *actor)
{
	enum trust writer = actor_trust(actor);
	const struct {
		const char *path;
		bool written;
	} parts[] = {
		{ "name", !patch || patch->name },         { "driver", !patch || patch->driver },
		{ "status", !patch || patch->status },     { "config", !patch || patch->config },
		{ "metadata", !patch || patch->metadata },
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		bool merged = patch && patch->merged_with && streq(parts[i].path, "config");

		if (!parts[i].written)
			continue;
		if (merged) {
			deciding_weaken(&row->trust, parts[i].path, writer);
			continue;
		}
		if (!row->trust)
			row->trust = json_object();
		json_put_str(row->trust, parts[i].path, trust_word(writer));
	}
}

struct environment_creation {
	const struct actor *actor;
	const struct environment *row;
};

static int insert_environment(struct tx *tx, void *arg, struct error *err)
{
	const struct environment_creation *creation = arg;
	const struct environment *row = creation->row;
	_cleanup_json_ json_t *details = json_object();

	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    check_one_local_tx(tx, row, err) < 0 || check_own_name_tx(tx, row, err) < 0 ||
	    row_insert_tx(tx, &ENVIRONMENT_INSERT, row, err) < 0)
		return -1;
	json_put_str(details, "name", row->name);
	json_put_str(details, "driver", driver_kind_name(row->driver));
	json_put_str(details, "status", environment_status_name(row->status));
	return write_activity(tx, row, row->created_at, creation->actor, "environment.created",
			      details, err);
}

int environment_create(struct db *db, struct clock *clock, const struct actor *actor,
		       const struct environment *in, struct environment *out, struct error *err)
{
	_cleanup_environment_ struct environment row = { 0 };
	struct environment_creation creation = { actor, &row };

	if (check_name(in->name, err) < 0 || check_metadata(in->metadata, err) < 0 ||
	    check_local_stays_active(in->driver, in->status, err) < 0)
		return -1;
	environment_copy(&row, in);
	if (!row.config)
		row.config = json_object();
	if (!id_is_set(row.id))
		id_new(row.id);
	row.created_at = row.updated_at = clock_now(clock);
	if (check_host(actor, &row, err) < 0)
		return -1;
	note_writer(&row, NULL, actor);
	if (DB_WRITE(db, "environment.create", insert_environment, &creation, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

struct environment_change {
	const char *id;
	const struct actor *actor;
	const struct environment_patch *patch;
	int64_t now;
	struct environment row;
};

static void replace_json(json_t **slot, const json_t *value)
{
	json_decref(*slot);
	*slot = !value || json_is_null(value) ? NULL : json_deep_copy(value);
}

static void apply_patch(struct environment *row, const struct environment_patch *patch)
{
	if (patch->name) {
		free(row->name);
		row->name = xstrdup(patch->name);
	}
	if (patch->description) {
		free(row->description);
		row->description = xstrdup(json_string_value(patch->description));
	}
	if (patch->driver)
		row->driver = *patch->driver;
	if (patch->status)
		row->status = *patch->status;
	if (patch->config)
		replace_json(&row->config, patch->config);
	if (patch->metadata)
		replace_json(&row->metadata, patch->metadata);
}

/* Which fields changed and how large they are; a config or metadata value never gets here. */
static json_t *patch_details(const struct environment_patch *patch, const struct environment *row)
{
	json_t *details = json_object(), *fields = json_array();
	const struct {
		const char *name;
		bool changed;
	} sorted[] = {
		{ "config", patch->config }, { "description", patch->description },
		{ "driver", patch->driver }, { "metadata", patch->metadata },
		{ "name", patch->name },     { "status", patch->status },
	};

	for (size_t i = 0; i < ARRAY_SIZE(sorted); i++) {
		if (sorted[i].changed)
			json_array_append_new(fields, json_string(sorted[i].name));
	}
	json_put_new(details, "changedFields", fields);
	if (patch->name)
		json_put_str(details, "name", row->name);
	if (patch->driver)
		json_put_str(details, "driver", driver_kind_name(row->driver));
	if (patch->status)
		json_put_str(details, "status", environment_status_name(row->status));
	if (patch->description)
		json_put_bool(details, "descriptionChanged", true);
	if (patch->config) {
		json_put_bool(details, "configChanged", true);
		json_put_int(details, "configTopLevelKeyCount",
			     (int64_t)json_object_size(row->config));
	}
	if (patch->metadata) {
		json_put_bool(details, "metadataChanged", true);
		json_put_int(details, "metadataTopLevelKeyCount",
			     (int64_t)json_object_size(row->metadata));
	}
	return details;
}

static int update_environment(struct tx *tx, void *arg, struct error *err)
{
	struct environment_change *change = arg;
	const struct environment_patch *patch = change->patch;
	struct environment *row = &change->row;
	_cleanup_json_ json_t *details = NULL;

	environment_clear(row);
	if (environment_get_tx(tx, change->id, row, err) < 0 ||
	    environment_changeable(change->actor, row, err) < 0)
		return -1;
	if (patch->merged_with && patch->merged_with != row->updated_at)
		return error_set(err, ERR_CONFLICT,
				 "another request changed the environment in the meantime");
	apply_patch(row, patch);
	if (check_host(change->actor, row, err) < 0)
		return -1;
	note_writer(row, patch, change->actor);
	if ((patch->driver || patch->status) &&
	    check_local_stays_active(row->driver, row->status, err) < 0)
		return -1;
	if (patch->driver && check_one_local_tx(tx, row, err) < 0)
		return -1;
	if (patch->name && check_own_name_tx(tx, row, err) < 0)
		return -1;
	/* Always later than before, so that updated_at tells two changes in one millisecond apart.
	 */
	row->updated_at = MAX_OF(change->now, row->updated_at + 1);
	if (row_update_tx(tx, &ENVIRONMENT_UPDATE, row, err) < 0)
		return -1;
	details = patch_details(patch, row);
	return write_activity(tx, row, change->now, change->actor, "environment.updated", details,
			      err);
}

int environment_update(struct db *db, struct clock *clock, const struct actor *actor,
		       const char *id, const struct environment_patch *patch,
		       struct environment *out, struct error *err)
{
	struct environment_change change = {
		.id = id, .actor = actor, .patch = patch, .now = clock_now(clock)
	};

	if (patch->name && check_name(patch->name, err) < 0)
		return -1;
	if (patch->config && !json_is_object(patch->config))
		return error_set(err, ERR_VALIDATION, "config must be an object");
	if (check_metadata(patch->metadata, err) < 0)
		return -1;

	int r = DB_WRITE(db, "environment.update", update_environment, &change, err);

	if (r == 0)
		hand_over(out, change.row);
	environment_clear(&change.row);
	return r;
}
