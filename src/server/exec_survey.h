/* Commands that relays hold are found, and taken up or ended. */
#pragma once

#include "api/server.h"

/* From the relays' files, at the end of recovery. Failing is reported, and survey_start makes up. */
void survey_recorded(struct server *server);
/* After recovery; the thread ends once the places are detached. */
int survey_start(struct server *server, struct error *err);
void survey_stop(struct server *server);
