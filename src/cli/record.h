/*
 * What the verbs about records share: finding one by name, listing, showing, editing in an editor,
 * removing. A kind of record is a table entry; its verbs are one line each.
 */
#pragma once

#include "cli/api.h"
#include "cli/cli.h"

struct record_kind {
	const char *noun;            /* of its verbs: "agent" */
	const char *called;          /* in sentences; NULL: as its verbs */
	const char *segment;         /* "agents", as in /api/agents/:id */
	const char *name_key;        /* what people call one by besides its id */
	const char *other_key;       /* another such name; NULL: none */
	const char *const *columns;  /* of `ls`, as print_table wants them */
	const char *const *fields;   /* of `show`, as print_fields wants them */
	const char *const *editable; /* keys of the document `edit` shows */
	const char *const *replaced; /* pairs: key, flag that says its value is the whole */
};

/* Those of the command line's company, with a connection. Flags --status and so on narrow it. */
int record_ls(struct cli *cli, const struct args *args, const struct record_kind *kind);
int record_show(struct cli *cli, const struct args *args, const struct record_kind *kind);
int record_edit(struct cli *cli, const struct args *args, const struct record_kind *kind);
int record_rm(struct cli *cli, const struct args *args, const struct record_kind *kind);
/* A connection, and the company the command line is about. */
int record_begin(struct cli *cli, struct api **api, char company_id[ID_SIZE], struct error *err);
/* Posts the body and prints the new id. */
int record_add(struct cli *cli, struct api *api, const char *company_id,
	       const struct record_kind *kind, const json_t *body);
/* PATCHes the one named by the first argument. */
int record_patch(struct cli *cli, const struct args *args, const struct record_kind *kind,
		 const json_t *body);

/* By id, name or other name within the company; new reference. */
int record_find(struct api *api, const char *company_id, const struct record_kind *kind,
		const char *name, json_t **out, struct error *err);
/* The one the first argument names, with a connection to its server. */
int record_named(struct cli *cli, const struct args *args, const struct record_kind *kind,
		 struct api **api, json_t **out, struct error *err);
/* The id of another record that a flag names goes into the body; a flag not given adds nothing. */
int record_reference(struct api *api, const char *company_id, const struct record_kind *kind,
		     const struct args *args, const char *flag, json_t *body, const char *key,
		     struct error *err);

/* JSON given on the command line, or @file; new reference. */
json_t *json_argument(const char *text, struct error *err);

/*
 * Shows the text in the user's editor. 1 with what was saved, 0 when the editor said no (it failed,
 * or the file is empty). `problem` (NULL: none) stands at the top as a comment.
 */
int edit_text(const char *text, const char *problem, char **saved, struct error *err);

extern const struct record_kind ENVIRONMENT_KIND, AGENT_KIND, PROJECT_KIND, ISSUE_KIND,
	WORKSPACE_KIND;

/* Verbs that differ in nothing but the kind of record. */
#define RECORD_VERB(ident, order, full_name, kind, does, arguments_text, count, flag_table, text)  \
	static int ident##_run(struct cli *cli, const struct args *args)                           \
	{                                                                                          \
		return does(cli, args, &(kind));                                                   \
	}                                                                                          \
	VERB(ident, order) = { .name = (full_name),                                                \
			       .arguments = (arguments_text),                                      \
			       .summary = (text),                                                  \
			       .flags = (flag_table),                                              \
			       .min_args = (count),                                                \
			       .max_args = (count),                                                \
			       .run = ident##_run }
extern const struct flag RECORD_LS_FLAGS[];
/* Behind `add`, whose order is given; the verb of its own that a kind has goes before `rm`. */
#define RECORD_VERBS(noun, word, kind, order)                                                      \
	RECORD_VERB(kind##_LS, (order) + 1, noun " ls", kind, record_ls, "", 0, RECORD_LS_FLAGS,   \
		    "list " word "s");                                                             \
	RECORD_VERB(kind##_SHOW, (order) + 2, noun " show", kind, record_show, "NAME", 1, NULL,    \
		    "show one " word);                                                             \
	RECORD_VERB(kind##_EDIT, (order) + 3, noun " edit", kind, record_edit, "NAME", 1, NULL,    \
		    "edit one " word " in $EDITOR");                                               \
	RECORD_VERB(kind##_RM, (order) + 9, noun " rm", kind, record_rm, "NAME", 1, NULL,          \
		    "remove one " word " that is not in use")
