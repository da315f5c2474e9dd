#include "record/selection.h"

#include <string.h>
#include <strings.h>
#include "record/row.h"
#include "record/trust.h"
#include "record/workspace.h"

/*
 * Issues, projects and workspaces keep their choice inside JSON, which SQL does not look into: they
 * are read page by page and only those that hold the id are parsed.
 */

#define PAGE "500"
#define PAGE_ROWS 500

SQL(AGENT_SELECTION_PAGE, "SELECT id, trust FROM agents WHERE company_id = $1"
			  " AND default_environment_id = $2 ORDER BY id LIMIT " PAGE);
SQL(AGENT_CLEAR_SELECTION, "UPDATE agents SET default_environment_id = NULL, trust = $2,"
			   " updated_at = $3 WHERE id = $1");

SQL(AGENT_SELECTION_COUNT, "SELECT COUNT(*) FROM agents"
			   " WHERE company_id = $1 AND default_environment_id = $2");
SQL(AGENT_SELECTION_FIRST, "SELECT id, name FROM agents"
			   " WHERE company_id = $1 AND default_environment_id = $2"
			   " ORDER BY created_at, id LIMIT CAST($3 AS BIGINT)");

SQL(ISSUE_SELECTION_PAGE,
    "SELECT id, execution_workspace_settings, created_at, title, trust FROM issues"
    " WHERE company_id = $1 AND execution_workspace_settings IS NOT NULL"
    " AND (created_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
    " ORDER BY created_at, id LIMIT " PAGE);
SQL(ISSUE_SELECTION_STORE, "UPDATE issues SET execution_workspace_settings = $2, updated_at = $3, "
			   "trust = $4 WHERE id = $1");

SQL(PROJECT_SELECTION_PAGE,
    "SELECT id, execution_workspace_policy, created_at, name, trust FROM projects"
    " WHERE company_id = $1 AND execution_workspace_policy IS NOT NULL"
    " AND (created_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
    " ORDER BY created_at, id LIMIT " PAGE);
SQL(PROJECT_SELECTION_STORE, "UPDATE projects SET execution_workspace_policy = $2, updated_at = "
			     "$3, trust = $4 WHERE id = $1");

SQL(WORKSPACE_SELECTION_PAGE,
    "SELECT id, metadata, last_used_at, name, trust FROM execution_workspaces"
    " WHERE company_id = $1 AND metadata IS NOT NULL"
    " AND (last_used_at, id) > (CAST($2 AS BIGINT), CAST($3 AS TEXT))"
    " ORDER BY last_used_at, id LIMIT " PAGE);
SQL(WORKSPACE_SELECTION_STORE,
    "UPDATE execution_workspaces SET metadata = $2, updated_at = $3, trust = $4 WHERE id = $1");

static bool unset_choice(json_t *settings, const char *environment_id)
{
	const char *chosen = json_str(settings, "environmentId");

	if (!chosen || strcasecmp(chosen, environment_id) != 0)
		return false;
	json_object_del(settings, "environmentId");
	return true;
}

/* A config with nothing left in it is no config. */
static bool unset_choice_in_metadata(json_t *metadata, const char *environment_id)
{
	if (!unset_choice(json_object_at(metadata, "config"), environment_id))
		return false;

	_cleanup_json_ json_t *left = workspace_config(metadata);

	if (!left)
		json_object_del(metadata, "config");
	return true;
}

struct chooser {
	const struct sql *page, *store;
	const char *path; /* of the choice, as record/trust.h names it */
	bool (*unset)(json_t *document, const char *environment_id);
	bool empty_is_null; /* a document with nothing left is stored as NULL */
};

static const struct chooser ISSUES = { &ISSUE_SELECTION_PAGE, &ISSUE_SELECTION_STORE,
				       "executionWorkspaceSettings.environmentId", unset_choice,
				       false };
static const struct chooser PROJECTS = { &PROJECT_SELECTION_PAGE, &PROJECT_SELECTION_STORE,
					 "executionWorkspacePolicy.environmentId", unset_choice,
					 false };
static const struct chooser WORKSPACES = { &WORKSPACE_SELECTION_PAGE, &WORKSPACE_SELECTION_STORE,
					   "config.environmentId", unset_choice_in_metadata, true };

/* One page: where it ended, and the rows of it that mention the environment. */
struct page {
	int rows;
	int64_t order;
	char last_id[ID_SIZE];
	json_t *mentions; /* {id: document} */
	json_t *names;    /* {id: name} of the same; NULL: nobody asks */
	json_t *trusts;   /* {id: trust} of the same; NULL: nobody asks */
};

static int read_page(struct tx *tx, const struct chooser *chooser, const char *company_id,
		     const char *environment_id, struct page *page, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	page->rows = 0;
	json_object_clear(page->mentions);
	json_object_clear(page->names);
	json_object_clear(page->trusts);
	if (tx_query(tx, &c, chooser->page, err, B_TEXT(company_id), B_INT(page->order),
		     B_TEXT(page->last_id)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		page->rows++;
		page->order = col_int(&c, 2);
		id_copy(page->last_id, col_text(&c, 0));
		if (!strcasestr(col_text(&c, 1), environment_id))
			continue;

		json_t *document;

		if (col_json(&c, 1, "choice of an environment", &document, err) < 0)
			return -1;
		json_put_new(page->mentions, page->last_id, document);
		if (page->names)
			json_put_str(page->names, page->last_id, col_text(&c, 3));
		if (!page->trusts)
			continue;

		json_t *trust;

		if (col_json(&c, 4, "trust", &trust, err) < 0)
			return -1;
		json_put_new(page->trusts, page->last_id, trust);
	}
	return r;
}

/* The column of a row whose choice goes: that there is none any more is the actor's doing. */
static char *trust_text(const json_t *trust, const char *path, const struct actor *actor)
{
	_cleanup_json_ json_t *changed =
		json_is_object(trust) ? json_deep_copy(trust) : json_object();

	json_put_str(changed, path, trust_word(actor_trust(actor)));
	return json_text(changed);
}

struct clearing {
	int64_t now;
	const struct actor *actor;
	const char *company_id, *environment_id;
};

static int store_document(struct tx *tx, const struct chooser *chooser, const struct clearing *c,
			  const char *id, const json_t *document, const json_t *trust,
			  struct error *err)
{
	bool empty = chooser->empty_is_null && json_object_size(document) == 0;
	_cleanup_free_ char *text = empty ? NULL : json_text(document);
	_cleanup_free_ char *writers = trust_text(trust, chooser->path, c->actor);

	return tx_exec(tx, chooser->store, err, B_TEXT(id), B_TEXT(text), B_INT(c->now),
		       B_TEXT(writers)) < 0
		       ? -1
		       : 0;
}

static int clear_choices(struct tx *tx, const struct chooser *chooser, const struct clearing *c,
			 int64_t *count, struct error *err)
{
	_cleanup_json_ json_t *mentions = json_object(), *trusts = json_object();
	struct page page = { .order = INT64_MIN, .mentions = mentions, .trusts = trusts };
	const char *id;
	json_t *document;

	do {
		if (read_page(tx, chooser, c->company_id, c->environment_id, &page, err) < 0)
			return -1;
		json_object_foreach (mentions, id, document) {
			if (!chooser->unset(document, c->environment_id))
				continue;
			if (store_document(tx, chooser, c, id, document,
					   json_object_get(trusts, id), err) < 0)
				return -1;
			(*count)++;
		}
	} while (page.rows == PAGE_ROWS);
	return 0;
}

static int read_agents(struct tx *tx, const struct clearing *c, json_t *trusts, struct error *err)
{
	_cleanup_cursor_ struct cursor cursor = { 0 };
	int r;

	json_object_clear(trusts);
	if (tx_query(tx, &cursor, &AGENT_SELECTION_PAGE, err, B_TEXT(c->company_id),
		     B_TEXT(c->environment_id)) < 0)
		return -1;
	while ((r = cursor_next(&cursor, err)) > 0) {
		json_t *trust;

		if (col_json(&cursor, 1, "agent trust", &trust, err) < 0)
			return -1;
		json_put_new(trusts, col_text(&cursor, 0), trust);
	}
	return r;
}

/* Those of a page have chosen nothing afterwards, so the next page begins behind them. */
static int clear_agents(struct tx *tx, const struct clearing *c, int64_t *count, struct error *err)
{
	_cleanup_json_ json_t *trusts = json_object();
	const char *id;
	json_t *trust;

	do {
		if (read_agents(tx, c, trusts, err) < 0)
			return -1;
		json_object_foreach (trusts, id, trust) {
			_cleanup_free_ char *text =
				trust_text(trust, "defaultEnvironmentId", c->actor);

			if (tx_exec(tx, &AGENT_CLEAR_SELECTION, err, B_TEXT(id), B_TEXT(text),
				    B_INT(c->now)) < 0)
				return -1;
			(*count)++;
		}
	} while (json_object_size(trusts) == PAGE_ROWS);
	return 0;
}

int selection_clear_tx(struct tx *tx, int64_t now, const struct actor *actor,
		       const char *company_id, const char *environment_id,
		       struct selection_counts *counts, struct error *err)
{
	const struct clearing c = { now, actor, company_id, environment_id };

	*counts = (struct selection_counts){ 0 };
	if (clear_agents(tx, &c, &counts->agents, err) < 0 ||
	    clear_choices(tx, &ISSUES, &c, &counts->issues, err) < 0 ||
	    clear_choices(tx, &PROJECTS, &c, &counts->projects, err) < 0)
		return -1;
	return clear_choices(tx, &WORKSPACES, &c, &counts->workspaces, err);
}

/* ---- the report ---- */

static json_t *choosers_json(int64_t count, json_t *first)
{
	json_t *out = json_object();

	json_put_int(out, "count", count);
	json_put_ref(out, "first", first);
	return out;
}

static void add_chooser(json_t *first, const char *id, const char *name)
{
	json_t *entry = json_object();

	json_put_str(entry, "id", id);
	json_put_str(entry, "name", name);
	json_array_append_new(first, entry);
}

static int report_agents(struct tx *tx, const char *company_id, const char *environment_id,
			 json_t *report, struct error *err)
{
	_cleanup_json_ json_t *first = json_array();
	_cleanup_cursor_ struct cursor total = { 0 }, c = { 0 };
	int r;

	if (tx_query(tx, &total, &AGENT_SELECTION_COUNT, err, B_TEXT(company_id),
		     B_TEXT(environment_id)) < 0 ||
	    cursor_next(&total, err) < 0)
		return -1;

	int64_t count = col_int(&total, 0);

	cursor_close(&total);
	if (tx_query(tx, &c, &AGENT_SELECTION_FIRST, err, B_TEXT(company_id),
		     B_TEXT(environment_id), B_INT(SELECTION_SHOWN)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0)
		add_chooser(first, col_text(&c, 0), col_text(&c, 1));
	if (r < 0)
		return -1;
	json_put_new(report, "agents", choosers_json(count, first));
	return 0;
}

static int report_choosers(struct tx *tx, const struct chooser *chooser, const char *key,
			   const char *company_id, const char *environment_id, json_t *report,
			   struct error *err)
{
	_cleanup_json_ json_t *mentions = json_object(), *names = json_object();
	_cleanup_json_ json_t *first = json_array();
	struct page page = { .order = INT64_MIN, .mentions = mentions, .names = names };
	int64_t count = 0;
	const char *id;
	json_t *document;

	do {
		if (read_page(tx, chooser, company_id, environment_id, &page, err) < 0)
			return -1;
		/* The documents are copies of ours: unsetting the choice only tells there was one.
		 */
		json_object_foreach (mentions, id, document) {
			if (!chooser->unset(document, environment_id))
				continue;
			if (count++ < SELECTION_SHOWN)
				add_chooser(first, id, json_str(names, id));
		}
	} while (page.rows == PAGE_ROWS);
	json_put_new(report, key, choosers_json(count, first));
	return 0;
}

json_t *selection_report_tx(struct tx *tx, const char *company_id, const char *environment_id,
			    struct error *err)
{
	_cleanup_json_ json_t *report = json_object();

	if (report_agents(tx, company_id, environment_id, report, err) < 0 ||
	    report_choosers(tx, &ISSUES, "issues", company_id, environment_id, report, err) < 0 ||
	    report_choosers(tx, &PROJECTS, "projects", company_id, environment_id, report, err) <
		    0 ||
	    report_choosers(tx, &WORKSPACES, "executionWorkspaces", company_id, environment_id,
			    report, err) < 0)
		return NULL;
	return steal(report);
}
