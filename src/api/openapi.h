/*
 * The API described for machines (OpenAPI 3.1), from the tables that the router itself uses, so that
 * it cannot say what is not so. scripts/api-docs makes the page for people of it.
 */
#pragma once

#include "http/http.h"

json_t *openapi_document(void);
