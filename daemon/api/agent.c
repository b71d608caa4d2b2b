#include "daemon/api/agent.h"

#include <stdio.h>
#include <string.h>

#include "daemon/api/status.h"
#include "daemon/request/server.h"

uint32_t agent_weight(struct agent *agent, double wait_us, uint64_t target_us, time_us now_us)
{
    double passed_us = agent->told ? (double)(now_us - agent->asked_us) : 0;
    double part = agent->told ? passed_us / (passed_us + AGENT_SMOOTH_US) : 1;
    double target = target_us > 0 ? (double)target_us : 1;
    agent->wait_us += (wait_us - agent->wait_us) * part;
    agent->asked_us = now_us;
    double percent = agent->wait_us <= target ? 100 : 100 * target / agent->wait_us;
    uint32_t weight = percent < 1 ? 1 : (uint32_t)(percent + 0.5);
    uint32_t change = weight > agent->told ? weight - agent->told : agent->told - weight;
    /* The ends are told all the same: an idle server is not left at 97. */
    if (change >= AGENT_STEP || weight == 100 || weight == 1)
        agent->told = weight;
    return agent->told;
}

size_t agent_line(struct agent *agent, const struct server *server, time_us now_us,
                  char line[AGENT_LINE_MAX])
{
    const char *word = status_word(server, now_us);
    int length;
    if (strcmp(word, "ok") == 0)
        length = snprintf(
            line, AGENT_LINE_MAX, "up ready %u%%\n",
            agent_weight(agent, server_wait_us(server), server->options->ttft_target, now_us));
    else if (strcmp(word, "draining") == 0)
        length = snprintf(line, AGENT_LINE_MAX, "up drain\n");
    else
        length = snprintf(line, AGENT_LINE_MAX, "down #%s\n", word);
    return (size_t)length;
}
