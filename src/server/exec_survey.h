/* Commands that relays hold and no record explains are found, and taken up or ended. */
#pragma once

#include "api/server.h"

/* After recovery; the thread ends once the places are detached. */
int survey_start(struct server *server, struct error *err);
void survey_stop(struct server *server);
