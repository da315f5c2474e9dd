/*
 * Who is asking, and what they may do: the two questions the HTTP server has about every request.
 *
 *   bearer -> actor: a user's or an agent's token, or the token of a run that is still going
 *   route, subject, actor -> company, permissions, or a refusal
 *
 * Something of another company does not exist as far as the caller can tell: an id of it is the
 * same 404 as an id of nothing. A company that is named in the path is 403, there or not.
 */
#pragma once

#include "api/server.h"

int access_authenticate(void *server, const char *bearer, struct actor *actor, struct error *err);
int access_authorize(void *server, struct request *request, struct error *err);
