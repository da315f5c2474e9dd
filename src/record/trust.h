/*
 * Trust: which class of caller wrote a stored value, and what such a value may decide.
 *
 *     agent < token < local
 *
 * A place of driver local is this host, as the server's own user. A run gets there only when
 * everything that leads it there was written by local trust: the starter, the choice of the
 * environment, every nearer level that was passed over, the links between the records, the agent's
 * command, the directory. The weakest writer counts, so a value that an agent or a person with a
 * token stored never takes a later run out of its sandbox, also when the operator starts that run.
 *
 * Every record that decides where or how something runs has a column `trust`: a JSON object from
 * the path of a deciding value to the class of its last writer. Nothing is known of values that are
 * older than the column: they count as a token's.
 *
 * DECIDING is the one table of those values. It says what is recorded, what agents leave alone and
 * what needs a permission; tests/unit/api/trust_matrix.c compares it with the bodies of the routes.
 */
#pragma once

#include "record/record.h"

enum trust {
	TRUST_AGENT, /* an agent's key, or the token of a run */
	TRUST_TOKEN, /* a person with a token; also a writer of which nothing is known */
	TRUST_LOCAL, /* the server, its own user, root; people where tokens may use driver local */
};
enum trust actor_trust(const struct actor *actor);
const char *trust_word(enum trust trust); /* "agent", "token", "local" */
enum trust trust_read(const char *word);  /* an unknown word is TRUST_TOKEN */
/* A caller that may not use driver local wants to. ERR_FORBIDDEN, always in these words. */
int refuse_local(struct error *err);
static inline enum trust trust_weaker(enum trust a, enum trust b)
{
	return a < b ? a : b;
}

enum deciding_record {
	DECIDING_AGENT,
	DECIDING_PROJECT,
	DECIDING_ISSUE,
	DECIDING_WORKSPACE,
	DECIDING_ENVIRONMENT,
	DECIDING_RUN, /* the body that starts one */
};
enum decides {
	DECIDES_PLACE,     /* which environment */
	DECIDES_COMMAND,   /* what is executed */
	DECIDES_VARIABLES, /* with which environment variables */
	DECIDES_DIRECTORY, /* in which directory of the host */
	DECIDES_LINK,      /* which other record's values apply */
	DECIDES_RIGHTS,    /* what the process may do by its token */
	DECIDES_WALLS,     /* what a place is made of */
};
struct deciding {
	enum deciding_record record;
	const char *path; /* of the body and of the record's JSON, keys joined by dots */
	enum decides decides;
};
extern const struct deciding DECIDING[]; /* ends with path NULL */

/* Whether agents may write such a value at all; if so the record itself looks at what comes of it.
 */
bool decides_for_agents(enum decides decides);

/*
 * That the writer may change what it changes. `before` and `after` are the record's JSON; NULL: it
 * is made. ERR_FORBIDDEN names the paths: agents change nothing that decides; variables need
 * environments:manage.
 */
int deciding_check(const struct writer *writer, enum deciding_record record, const json_t *before,
		   const json_t *after, struct error *err);

/*
 * Notes who wrote what, in the record's column (an object, or NULL for none yet). A value that was
 * changed is the writer's; one that was laid over another's, or put there by the server, has the
 * weaker of both. Naming a value again as it is raises its trust and never lowers it.
 */
void deciding_note(const struct actor *actor, enum deciding_record record, const json_t *before,
		   const json_t *body, const json_t *after, json_t **trust);
enum trust deciding_trust(const json_t *trust, const char *path);
/* The value came from elsewhere, whose writer counts too. */
void deciding_weaken(json_t **trust, const char *path, enum trust other);
