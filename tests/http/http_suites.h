#pragma once

#include <check.h>
#include <stdio.h>

Suite *access_suite(void);
Suite *bodies_suite(void);
Suite *chat_ask_suite(void);
Suite *entry_suite(void);
Suite *exchange_suite(void);
Suite *fields_suite(void);
Suite *framing_suite(void);
Suite *health_suite(void);
Suite *adapters_suite(void);
Suite *metrics_suite(void);
Suite *models_suite(void);
Suite *names_suite(void);
Suite *partial_suite(void);
Suite *question_suite(void);
Suite *openapi_suite(void);
Suite *pairs_suite(void);
Suite *router_suite(void);
Suite *lists_suite(void);
Suite *tagged_suite(void);
Suite *tensors_suite(void);
Suite *texts_suite(void);
Suite *timing_suite(void);
Suite *tools_suite(void);
Suite *untaken_suite(void);
Suite *users_suite(void);

/* daemon/http/FIELDS.md, from the table. */
void fields_write(FILE *page);
