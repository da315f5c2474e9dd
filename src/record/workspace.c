#include "record/record.h"

#include "base/text.h"
#include "record/kinds.h"
#include "record/row.h"

#define WORKSPACE_COLUMNS                                                                          \
	"id, company_id, project_id, source_issue_id, mode, strategy_type, name, status, cwd,"     \
	" repo_url, base_ref, branch_name, provider_type, provider_ref, metadata, last_used_at,"   \
	" opened_at, closed_at, created_at, updated_at"

SQL(WORKSPACE_GET, "SELECT " WORKSPACE_COLUMNS " FROM execution_workspaces WHERE id = $1");
SQL(WORKSPACE_INSERT, "INSERT INTO execution_workspaces (" WORKSPACE_COLUMNS ")"
		      " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,"
		      " $16, $17, $18, $19, $19)");
SQL(WORKSPACE_SET_METADATA,
    "UPDATE execution_workspaces SET metadata = $2, last_used_at = $3, updated_at = $3"
    " WHERE id = $1");
SQL(WORKSPACE_PROJECT_OF_COMPANY, "SELECT 1 FROM projects WHERE id = $1 AND company_id = $2");
SQL(WORKSPACE_ISSUE_OF_COMPANY, "SELECT 1 FROM issues WHERE id = $1 AND company_id = $2");

void workspace_record_clear(struct workspace_record *workspace)
{
	free(workspace->mode);
	free(workspace->strategy_type);
	free(workspace->name);
	free(workspace->status);
	free(workspace->cwd);
	free(workspace->repo_url);
	free(workspace->base_ref);
	free(workspace->branch_name);
	free(workspace->provider_type);
	free(workspace->provider_ref);
	json_decref(workspace->metadata);
	*workspace = (struct workspace_record){ 0 };
}

json_t *workspace_record_json(const struct workspace_record *workspace)
{
	json_t *o = json_object();

	json_put_str(o, "id", workspace->id);
	json_put_str(o, "companyId", workspace->company_id);
	json_put_str(o, "projectId", workspace->project_id);
	json_put_id(o, "sourceIssueId", workspace->source_issue_id);
	json_put_str(o, "mode", workspace->mode);
	json_put_str(o, "strategyType", workspace->strategy_type);
	json_put_str(o, "name", workspace->name);
	json_put_str(o, "status", workspace->status);
	json_put_str(o, "cwd", workspace->cwd);
	json_put_str(o, "repoUrl", workspace->repo_url);
	json_put_str(o, "baseRef", workspace->base_ref);
	json_put_str(o, "branchName", workspace->branch_name);
	json_put_str(o, "providerType", workspace->provider_type);
	json_put_str(o, "providerRef", workspace->provider_ref);
	json_put_new(o, "config", workspace_config(workspace->metadata));
	json_put_ref(o, "metadata", workspace->metadata);
	json_put_time(o, "lastUsedAt", workspace->last_used_at);
	json_put_time(o, "openedAt", workspace->opened_at);
	json_put_time(o, "closedAt", workspace->closed_at);
	json_put_time(o, "createdAt", workspace->created_at);
	json_put_time(o, "updatedAt", workspace->updated_at);
	return o;
}

static int workspace_record_read(struct cursor *c, struct workspace_record *out, struct error *err)
{
	_cleanup_(workspace_record_clear) struct workspace_record row = { 0 };
	enum workspace_mode mode;
	enum workspace_status status;

	id_copy(row.id, col_text(c, 0));
	id_copy(row.company_id, col_text(c, 1));
	id_copy(row.project_id, col_text(c, 2));
	id_copy(row.source_issue_id, col_text(c, 3));
	if (!workspace_mode_parse(col_text(c, 4), &mode))
		return unexpected_value(err, "workspace mode", col_text(c, 4));
	if (!workspace_status_parse(col_text(c, 7), &status))
		return unexpected_value(err, "workspace status", col_text(c, 7));
	row.mode = xstrdup(col_text(c, 4));
	row.strategy_type = xstrdup(col_text(c, 5));
	row.name = xstrdup(col_text(c, 6));
	row.status = xstrdup(col_text(c, 7));
	row.cwd = xstrdup(col_text(c, 8));
	row.repo_url = xstrdup(col_text(c, 9));
	row.base_ref = xstrdup(col_text(c, 10));
	row.branch_name = xstrdup(col_text(c, 11));
	row.provider_type = xstrdup(col_text(c, 12));
	row.provider_ref = xstrdup(col_text(c, 13));
	if (col_json(c, 14, "workspace metadata", &row.metadata, err) < 0)
		return -1;
	row.last_used_at = col_int(c, 15);
	row.opened_at = col_int(c, 16);
	row.closed_at = col_int(c, 17);
	row.created_at = col_int(c, 18);
	row.updated_at = col_int(c, 19);
	hand_over(out, row);
	return 0;
}

ROW_KIND(WORKSPACE, workspace_record, "Execution workspace");

int workspace_record_get(struct db *db, const char *id, struct workspace_record *out,
			 struct error *err)
{
	return row_get(db, &WORKSPACE, &WORKSPACE_GET, out, err, B_TEXT(id));
}

static int insert_workspace(struct tx *tx, void *arg, struct error *err)
{
	const struct workspace_record *row = arg;
	_cleanup_free_ char *metadata = json_column(row->metadata);

	if (company_exists_tx(tx, row->company_id, err) < 0 ||
	    reference_check_tx(tx, &WORKSPACE_PROJECT_OF_COMPANY, "Project", row->project_id,
			       row->company_id, err) < 0 ||
	    reference_check_tx(tx, &WORKSPACE_ISSUE_OF_COMPANY, "Issue", row->source_issue_id,
			       row->company_id, err) < 0)
		return -1;
	return tx_exec(tx, &WORKSPACE_INSERT, err, B_TEXT(row->id), B_TEXT(row->company_id),
		       B_TEXT(row->project_id), B_ID(row->source_issue_id), B_TEXT(row->mode),
		       B_TEXT(row->strategy_type), B_TEXT(row->name), B_TEXT(row->status),
		       B_TEXT(row->cwd), B_TEXT(row->repo_url), B_TEXT(row->base_ref),
		       B_TEXT(row->branch_name), B_TEXT(row->provider_type),
		       B_TEXT(row->provider_ref), B_TEXT(metadata), B_INT(row->last_used_at),
		       B_INT(row->opened_at), B_TIME(row->closed_at), B_INT(row->created_at)) < 0
		       ? -1
		       : 0;
}

static char *given_or(const char *given, const char *otherwise)
{
	return xstrdup(given ? given : otherwise);
}

/* Completes what the caller left out; the words must be known ones. */
static int workspace_fill(const struct workspace_record *in, int64_t now,
			  struct workspace_record *row, struct error *err)
{
	enum workspace_mode mode;
	enum workspace_status status;

	row->name = name_trimmed("A workspace's name", in->name, NAME_MAX_BYTES, err);
	if (!row->name)
		return -1;
	row->mode = given_or(in->mode, workspace_mode_name(WORKSPACE_SHARED));
	if (!workspace_mode_parse(row->mode, &mode))
		return error_set(err, ERR_VALIDATION, "unknown workspace mode \"%.100s\"",
				 row->mode);
	row->status = given_or(in->status, workspace_status_name(WORKSPACE_ACTIVE));
	if (!workspace_status_parse(row->status, &status))
		return error_set(err, ERR_VALIDATION, "unknown workspace status \"%.100s\"",
				 row->status);
	if (!id_is_set(in->project_id))
		return error_set(err, ERR_VALIDATION, "a workspace belongs to a project");
	if (id_is_set(in->id))
		id_copy(row->id, in->id);
	else
		id_new(row->id);
	id_copy(row->company_id, in->company_id);
	id_copy(row->project_id, in->project_id);
	id_copy(row->source_issue_id, in->source_issue_id);
	row->strategy_type = given_or(in->strategy_type, "project_primary");
	row->provider_type = given_or(in->provider_type, "local_fs");
	row->cwd = xstrdup(in->cwd);
	row->repo_url = xstrdup(in->repo_url);
	row->base_ref = xstrdup(in->base_ref);
	row->branch_name = xstrdup(in->branch_name);
	row->provider_ref = xstrdup(in->provider_ref);
	row->metadata = in->metadata ? json_deep_copy(in->metadata) : NULL;
	row->last_used_at = in->last_used_at ? in->last_used_at : now;
	row->opened_at = in->opened_at ? in->opened_at : now;
	row->closed_at = in->closed_at;
	row->created_at = row->updated_at = now;
	return 0;
}

int workspace_record_create(struct db *db, struct clock *clock, const struct workspace_record *in,
			    struct workspace_record *out, struct error *err)
{
	_cleanup_(workspace_record_clear) struct workspace_record row = { 0 };

	if (workspace_fill(in, clock_now(clock), &row, err) < 0)
		return -1;
	if (DB_WRITE(db, "workspace.create", insert_workspace, &row, err) < 0)
		return -1;
	hand_over(out, row);
	return 0;
}

struct metadata_change {
	const char *id, *text;
	int64_t now;
};

static int update_metadata(struct tx *tx, void *arg, struct error *err)
{
	const struct metadata_change *change = arg;
	int64_t n = tx_exec(tx, &WORKSPACE_SET_METADATA, err, B_TEXT(change->id),
			    B_TEXT(change->text), B_INT(change->now));

	if (n == 0)
		return error_set(err, ERR_NOT_FOUND, "Execution workspace not found");
	return n < 0 ? -1 : 0;
}

int workspace_record_set_metadata(struct db *db, struct clock *clock, const char *id,
				  const json_t *metadata, struct error *err)
{
	_cleanup_free_ char *text = json_column(metadata);
	struct metadata_change change = { id, text, clock_now(clock) };

	return DB_WRITE(db, "workspace.set_metadata", update_metadata, &change, err);
}
