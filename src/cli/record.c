#include "cli/record.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"

#define SCRIPT_TRIES 5

const struct flag RECORD_LS_FLAGS[] = {
	{ "status", 0, "STATUS", "only those with this status", false },
	{ 0 },
};

json_t *json_argument(const char *text, struct error *err)
{
	_cleanup_buf_ struct buf file = { 0 };

	if (text[0] != '@')
		return json_parse(text, strlen(text), err);
	if (file_read(AT_FDCWD, text + 1, &file, 1 << 20, err) < 0)
		return NULL;
	return json_parse(buf_str(&file), file.len, err);
}

int record_begin(struct cli *cli, struct api **api, char company_id[ID_SIZE], struct error *err)
{
	if (api_connect(cli, true, api, err) < 0)
		return -1;
	return api_company(cli, *api, company_id, err);
}

/* ---- finding ---- */

static const char *called(const struct record_kind *kind)
{
	return kind->called ? kind->called : kind->noun;
}

static int list_all(struct api *api, const char *company_id, const struct record_kind *kind,
		    const char *query, json_t **list, struct error *err)
{
	_cleanup_free_ char *path =
		xasprintf("/api/companies/%s/%s%s", company_id, kind->segment, query);

	return api_call(api, "GET", path, NULL, list, err);
}

/* 1 found, 0 not there. */
static int pick_by(const json_t *list, const struct record_kind *kind, const char *key,
		   const char *name, json_t **out, struct error *err)
{
	json_t *found = NULL;

	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *record = json_array_get(list, i);

		if (!str_equal(json_str(record, key), name))
			continue;
		if (found)
			return error_set(err, ERR_CONFLICT,
					 "there are several %ss called \"%.200s\": use the id",
					 called(kind), name);
		found = record;
	}
	*out = json_incref(found);
	return found != NULL;
}

int record_find(struct api *api, const char *company_id, const struct record_kind *kind,
		const char *name, json_t **out, struct error *err)
{
	_cleanup_json_ json_t *list = NULL;
	int found = 0;

	if (id_is_valid(name))
		return api_callf(api, "GET", NULL, out, err, "/api/%s/%s", kind->segment, name);
	if (list_all(api, company_id, kind, "", &list, err) < 0)
		return -1;
	if (kind->other_key)
		found = pick_by(list, kind, kind->other_key, name, out, err);
	if (found == 0)
		found = pick_by(list, kind, kind->name_key, name, out, err);
	if (found == 0)
		return error_set(err, ERR_NOT_FOUND,
				 "there is no %s \"%.200s\"; `berth %s ls` lists them",
				 called(kind), name, kind->noun);
	return found < 0 ? -1 : 0;
}

int record_named(struct cli *cli, const struct args *args, const struct record_kind *kind,
		 struct api **api, json_t **out, struct error *err)
{
	char company_id[ID_SIZE];

	if (record_begin(cli, api, company_id, err) < 0)
		return -1;
	return record_find(*api, company_id, kind, args->positional[0], out, err);
}

int record_reference(struct api *api, const char *company_id, const struct record_kind *kind,
		     const struct args *args, const char *flag, json_t *body, const char *key,
		     struct error *err)
{
	_cleanup_json_ json_t *found = NULL;

	if (!args_has(args, flag))
		return 0;
	if (record_find(api, company_id, kind, args_value(args, flag), &found, err) < 0)
		return error_wrap(err, "--%s", flag);
	json_put_str(body, key, json_str(found, "id"));
	return 0;
}

/* ---- ls, show, add, rm ---- */

int record_ls(struct cli *cli, const struct args *args, const struct record_kind *kind)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *list = NULL;
	_cleanup_api_ struct api *api = NULL;
	_cleanup_free_ char *query = NULL, *status = NULL;
	char company_id[ID_SIZE];

	if (record_begin(cli, &api, company_id, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (args_has(args, "status")) {
		status = api_escape(api, args_value(args, "status"));
		query = xasprintf("?status=%s", status);
	}
	if (list_all(api, company_id, kind, query ? query : "", &list, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(list);
	else
		print_table(list, kind->columns);
	return 0;
}

int record_show(struct cli *cli, const struct args *args, const struct record_kind *kind)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (record_named(cli, args, kind, &api, &record, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(record);
	else
		print_fields(record, kind->fields);
	return 0;
}

int record_add(struct cli *cli, struct api *api, const char *company_id,
	       const struct record_kind *kind, const json_t *body)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *made = NULL;

	if (api_callf(api, "POST", body, &made, &err, "/api/companies/%s/%s", company_id,
		      kind->segment) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(made);
	else
		puts(json_str(made, "id"));
	return 0;
}

int record_rm(struct cli *cli, const struct args *args, const struct record_kind *kind)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = NULL, *removed = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (record_named(cli, args, kind, &api, &record, &err) < 0 ||
	    api_callf(api, "DELETE", NULL, &removed, &err, "/api/%s/%s", kind->segment,
		      json_str(record, "id")) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(removed);
	return 0;
}

static int send_patch(struct api *api, const struct record_kind *kind, const json_t *record,
		      const json_t *body, json_t **changed, struct error *err)
{
	return api_callf(api, "PATCH", body, changed, err, "/api/%s/%s", kind->segment,
			 json_str(record, "id"));
}

int record_patch(struct cli *cli, const struct args *args, const struct record_kind *kind,
		 const json_t *body)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = NULL, *changed = NULL;
	_cleanup_api_ struct api *api = NULL;

	if (record_named(cli, args, kind, &api, &record, &err) < 0 ||
	    send_patch(api, kind, record, body, &changed, &err) < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(changed);
	return 0;
}

/* ---- edit ---- */

static json_t *document_of(const json_t *record, const struct record_kind *kind)
{
	json_t *document = json_object();

	for (size_t i = 0; kind->editable[i]; i++)
		json_put_ref(document, kind->editable[i],
			     json_object_get(record, kind->editable[i]));
	return document;
}

/* What differs; a key that is gone is taken away. */
static json_t *difference(const json_t *before, const json_t *after, const struct record_kind *kind)
{
	json_t *patch = json_object(), *value;
	const char *key;

	json_object_foreach ((json_t *)after, key, value) {
		if (!json_equal(json_object_get(before, key), value))
			json_put_ref(patch, key, value);
	}
	json_object_foreach ((json_t *)before, key, value) {
		if (!json_object_get(after, key) && !json_is_null(value))
			json_put_str(patch, key, NULL);
	}
	for (size_t i = 0; kind->replaced && kind->replaced[i]; i += 2) {
		if (json_object_get(patch, kind->replaced[i]))
			json_put_bool(patch, kind->replaced[i + 1], true);
	}
	return patch;
}

/* 1 changed, 0 nothing to change, -1 refused: what was saved is not right yet. */
static int apply_document(struct api *api, const struct record_kind *kind, const json_t *record,
			  const char *saved, json_t **changed, struct error *err)
{
	_cleanup_json_ json_t *before = document_of(record, kind), *patch = NULL;
	_cleanup_json_ json_t *after = json_parse(saved, strlen(saved), err);

	if (!after)
		return -1;
	if (!json_is_object(after))
		return error_set(err, ERR_VALIDATION, "the document must be an object");
	patch = difference(before, after, kind);
	if (json_object_size(patch) == 0)
		return 0;
	return send_patch(api, kind, record, patch, changed, err) < 0 ? -1 : 1;
}

static char *first_text(const json_t *record, const struct record_kind *kind)
{
	_cleanup_json_ json_t *document = document_of(record, kind);
	_cleanup_free_ char *pretty = json_dumps(document, JSON_INDENT(2) | JSON_ENCODE_ANY);

	return xasprintf("%s\n", pretty ? pretty : "{}");
}

/* Only what somebody typed can be mended by typing; the rest is told as it is. */
static bool can_be_mended(const struct error *err)
{
	int status = error_http_status(err->code);

	return status == 400 || status == 409 || status == 422;
}

static int edit_until_right(struct api *api, const struct record_kind *kind, const json_t *record,
			    json_t **changed, struct error *err)
{
	_cleanup_free_ char *text = first_text(record, kind), *problem = NULL;

	for (int tries = 1;; tries++) {
		_cleanup_free_ char *saved = NULL;
		int outcome = edit_text(text, problem, &saved, err);

		if (outcome < 0)
			return -1;
		/* Closing it without a change gives up; what was wrong before is the reason. */
		if (outcome == 0 || (problem && streq(saved, text)))
			return error_set(err, ERR_CANCELLED, "%s%snothing was changed",
					 problem ? problem : "", problem ? "; " : "");
		outcome = apply_document(api, kind, record, saved, changed, err);
		if (outcome >= 0)
			return outcome;
		/* A script that edits does not see what is wrong, and would go on for ever. */
		if (!can_be_mended(err) || (tries >= SCRIPT_TRIES && !isatty(STDIN_FILENO)))
			return -1;
		free(problem);
		problem = xstrdup(err->message);
		error_clear(err);
		free(text);
		text = steal(saved);
	}
}

int record_edit(struct cli *cli, const struct args *args, const struct record_kind *kind)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *record = NULL, *changed = NULL;
	_cleanup_api_ struct api *api = NULL;
	int outcome;

	if (record_named(cli, args, kind, &api, &record, &err) < 0)
		return cli_fail(cli, &err, 1);
	outcome = edit_until_right(api, kind, record, &changed, &err);
	if (outcome < 0)
		return cli_fail(cli, &err, 1);
	if (cli->json)
		print_json(outcome ? changed : record);
	else if (!cli->quiet)
		fprintf(stderr, "%s %s\n", called(kind), outcome ? "changed" : "not changed");
	return 0;
}
