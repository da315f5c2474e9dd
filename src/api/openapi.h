/*
 * The API described for machines (OpenAPI 3.1) and for people (a page of Markdown), both from the
 * tables that the router itself uses, so that neither can say what is not so.
 */
#pragma once

#include "http/http.h"

json_t *openapi_document(void);
/* The page that docs/api.md is, written from the document; allocated. */
char *openapi_page(const json_t *document);
