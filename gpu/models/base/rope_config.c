#include "gpu/models/base/rope_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/checkpoint/config_field.h"
#include "gpu/models/base/family.h"
#include "gpu/models/base/model_config.h"

#define THETA_MIN 1.001
#define THETA_MAX 1e12
#define FACTOR_MAX 4096.0
#define LONG_FACTOR_MAX 1e5 /* of one pair */

struct parameters {
    enum model_rope_kind kind;
    double theta;
    double factor; /* 0: not given */
    double original;
    double low, high;                         /* llama3 */
    double beta_fast, beta_slow;              /* yarn, as all that follows */
    double attention, mscale, mscale_all_dim; /* 0: not given */
    bool truncate;
    double short_factors[MODEL_ROPE_PAIRS_MAX], long_factors[MODEL_ROPE_PAIRS_MAX]; /* longrope */
};

static int read_kind(const struct fields *rope, const struct model_config *config,
                     enum model_rope_kind *ret)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn", "longrope"};
    const char *key = field_get(rope, "rope_type") ? "rope_type" : "type";
    const char *name = "default";
    int rc = field_string(rope, key, &name);
    if (rc)
        return rc;
    if (config->longrope_by_names && (!strcmp(name, "su") || !strcmp(name, "yarn")))
        name = "longrope";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum model_rope_kind)i;
            return 0;
        }
    return field_refuse(rope, key, field_get(rope, key),
                        "a supported kind of rope (default, linear, llama3, yarn, longrope)");
}

#define PARTIAL "partial_rotary_factor"

/* config->rotary. The dictionary's wins where both are given. */
static int read_partial(const struct fields *top, const struct fields *rope,
                        struct model_config *config)
{
    const struct fields *said = field_get(rope, PARTIAL) ? rope : top;
    double factor = config->rotary_factor > 0 ? (double)config->rotary_factor : 1;
    int rc = field_number(top, PARTIAL, 0, 1, &factor);
    if (rc == 0)
        rc = field_number(rope, PARTIAL, 0, 1, &factor);
    if (rc)
        return rc;
    if (factor < 1 && config->rotary_factor <= 0)
        return field_refuse(said, PARTIAL, field_get(said, PARTIAL),
                            "supported (heads are rotated whole)");
    config->rotary = (uint32_t)(config->head_dim * factor);
    if (config->rotary < 2 || config->rotary % 2)
        return field_refuse(said, PARTIAL, field_get(said, PARTIAL),
                            "one by which an even number of a head's elements is rotated");
    return 0;
}

static int read_original(const struct fields *rope, struct parameters *p)
{
    return field_number(rope, "original_max_position_embeddings", 1, MODEL_CONTEXT_MAX,
                        &p->original);
}

static int read_llama3(const struct fields *rope, struct parameters *p)
{
    static const char *const required[] = {"factor", "low_freq_factor", "high_freq_factor"};
    for (int i = 0; i < 3; i++) {
        int rc = field_require(rope, required[i]);
        if (rc)
            return rc;
    }
    int rc = read_original(rope, p);
    if (rc == 0)
        rc = field_number(rope, "low_freq_factor", 1e-3, 1e6, &p->low);
    if (rc == 0)
        rc = field_number(rope, "high_freq_factor", 1e-3, 1e6, &p->high);
    if (rc == 0 && p->high <= p->low)
        return field_refuse(rope, "high_freq_factor", field_get(rope, "high_freq_factor"),
                            "over low_freq_factor");
    return rc;
}

static int read_yarn(const struct fields *rope, struct parameters *p)
{
    int rc = read_original(rope, p);
    if (rc == 0)
        rc = field_number(rope, "beta_fast", 1e-3, 1e6, &p->beta_fast);
    if (rc == 0)
        rc = field_number(rope, "beta_slow", 1e-3, 1e6, &p->beta_slow);
    if (rc == 0 && p->beta_fast < p->beta_slow)
        return field_refuse(rope, "beta_fast", field_get(rope, "beta_fast"),
                            "at least beta_slow (32 and 1 where not given)");
    if (rc == 0)
        rc = field_number(rope, "attention_factor", 1e-3, 1e3, &p->attention);
    if (rc == 0)
        rc = field_number(rope, "mscale", 0, 1e3, &p->mscale);
    if (rc == 0)
        rc = field_number(rope, "mscale_all_dim", 0, 1e3, &p->mscale_all_dim);
    if (rc == 0)
        rc = field_flag(rope, "truncate", &p->truncate);
    if (rc == 0 && p->factor == 0) {
        rc = field_require(rope, "original_max_position_embeddings");
    }
    return rc;
}

static int read_factors(const struct fields *rope, const char *key, uint32_t pairs, double *ret)
{
    char wanted[64];
    const json *list = field_get(rope, key);
    uint32_t i = 0;
    int rc = field_require(rope, key);
    if (rc)
        return rc;
    snprintf(wanted, sizeof wanted, "a list of %u numbers from 0.001 to %.0f", pairs,
             LONG_FACTOR_MAX);
    if (!json_is_array(list) || json_count(list) != pairs)
        return field_refuse(rope, key, list, wanted);
    for (const json *one = json_child(list); one; one = json_next(one)) {
        if (!json_is_number(one) || !(json_number(one) >= 1e-3) ||
            json_number(one) > LONG_FACTOR_MAX)
            return field_refuse(rope, key, one, wanted);
        ret[i++] = json_number(one);
    }
    return 0;
}

/* What stands at the top is the original length, whatever the dictionary says. */
static int read_long(const struct fields *top, const struct fields *rope, uint32_t pairs,
                     struct parameters *p)
{
    static const char name[] = "original_max_position_embeddings";
    int rc =
        field_number(field_get(top, name) ? top : rope, name, 2, MODEL_CONTEXT_MAX, &p->original);
    if (rc == 0)
        rc = field_number(rope, "attention_factor", 1e-3, 1e3, &p->attention);
    if (rc == 0)
        rc = read_factors(rope, "short_factor", pairs, p->short_factors);
    if (rc == 0)
        rc = read_factors(rope, "long_factor", pairs, p->long_factors);
    return rc;
}

/* The dictionary in either spelling; rope_scaling wins where both are given, as in transformers. */
static int find_dictionary(const struct fields *top, struct fields *ret_rope)
{
    const char *name = field_get(top, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json *given = field_get(top, name);
    *ret_rope = (struct fields){given, top->file, name, top->error};
    if (!given)
        return 0;
    if (!json_is_object(given))
        return field_refuse(top, name, given, "an object");
    for (const json *member = json_child(given); member; member = json_next(member))
        if (json_is_object(member))
            return field_refuse(ret_rope, json_key(member), member,
                                "supported (one set of parameters for all layers is)");
    return 0;
}

/* llama3 and yarn: how much longer than the original the context is. */
static int check_factor(const struct fields *top, const struct fields *rope, double context,
                        struct parameters *p)
{
    if (p->factor == 0)
        p->factor = context / p->original;
    if (p->factor < 1 || p->factor > FACTOR_MAX)
        return error_set(top->error, ERR_BAD_MODEL,
                         "%s: %s.original_max_position_embeddings: %.0f with "
                         "max_position_embeddings %.0f gives a factor out of 1 to %.0f",
                         top->file, rope->parent, p->original, context, FACTOR_MAX);
    return 0;
}

/* One set of parameters; `theta`: the key that has it beside the set, `otherwise` where both are
 * silent. */
static int read_set(const struct fields *top, const struct fields *rope, const char *theta,
                    double otherwise, struct model_config *config, struct parameters *p)
{
    const double context = config->context_max;
    *p = (struct parameters){
        .theta = otherwise, .original = context, .beta_fast = 32, .beta_slow = 1, .truncate = true};
    int rc = field_number(top, theta, THETA_MIN, THETA_MAX, &p->theta);
    if (rc == 0)
        rc = field_number(rope, "rope_theta", THETA_MIN, THETA_MAX, &p->theta);
    if (rc == 0)
        rc = read_partial(top, rope, config);
    if (rc == 0)
        rc = read_kind(rope, config, &p->kind);
    if (rc || p->kind == MODEL_ROPE_DEFAULT)
        return rc;
    rc = field_number(rope, "factor", 1, FACTOR_MAX, &p->factor);
    if (rc)
        return rc;
    if (p->kind == MODEL_ROPE_LINEAR)
        return field_require(rope, "factor");
    if (p->kind == MODEL_ROPE_LONG)
        return read_long(top, rope, config->rotary / 2, p);
    rc = p->kind == MODEL_ROPE_LLAMA3 ? read_llama3(rope, p) : read_yarn(rope, p);
    return rc ? rc : check_factor(top, rope, context, p);
}

static int read_parameters(const struct fields *top, struct model_config *config,
                           struct parameters *p)
{
    struct fields rope;
    int rc = find_dictionary(top, &rope);
    return rc ? rc : read_set(top, &rope, "rope_theta", 10000, config, p);
}

static double llama3_frequency(const struct parameters *p, double frequency)
{
    double wavelength = 2 * M_PI / frequency;
    if (wavelength < p->original / p->high)
        return frequency;
    if (wavelength > p->original / p->low)
        return frequency / p->factor;
    double smooth = (p->original / wavelength - p->low) / (p->high - p->low);
    return (1 - smooth) * frequency / p->factor + smooth * frequency;
}

/* The pair whose wavelength makes `rotations` turns over the original context. */
static double yarn_dimension(const struct parameters *p, double rotations, double head_dim)
{
    return head_dim * log(p->original / (rotations * 2 * M_PI)) / (2 * log(p->theta));
}

static void yarn_range(const struct parameters *p, double head_dim, double *ret_low,
                       double *ret_high)
{
    double low = yarn_dimension(p, p->beta_fast, head_dim);
    double high = yarn_dimension(p, p->beta_slow, head_dim);
    if (p->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, head_dim - 1);
    *ret_low = low;
    *ret_high = low == high ? high + 0.001 : high;
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn_attention(const struct parameters *p)
{
    if (p->attention > 0)
        return p->attention;
    if (p->mscale > 0 && p->mscale_all_dim > 0)
        return yarn_scale(p->factor, p->mscale) / yarn_scale(p->factor, p->mscale_all_dim);
    return yarn_scale(p->factor, 1);
}

static double long_attention(const struct parameters *p, double context)
{
    double factor = p->factor > 0 ? p->factor : context / p->original;
    if (p->attention > 0)
        return p->attention;
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(p->original));
}

/* `factors` of the pairs: longrope's. Pairs behind the rotated ones keep a frequency of 0. */
static void fill(const struct parameters *p, const struct model_config *config,
                 const double *factors, struct model_rope *rope)
{
    double low = 0, high = 1, rotary = config->rotary;
    *rope = (struct model_rope){.kind = p->kind, .pairs = config->head_dim / 2, .attention = 1};
    if (p->kind == MODEL_ROPE_YARN)
        yarn_range(p, rotary, &low, &high);
    for (uint32_t i = 0; i < config->rotary / 2; i++) {
        double frequency = pow(p->theta, -2.0 * i / rotary);
        if (p->kind == MODEL_ROPE_LINEAR) {
            frequency /= p->factor;
        } else if (p->kind == MODEL_ROPE_LLAMA3) {
            frequency = llama3_frequency(p, frequency);
        } else if (p->kind == MODEL_ROPE_YARN) {
            double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
            frequency = frequency / p->factor * ramp + frequency * (1 - ramp);
        } else if (p->kind == MODEL_ROPE_LONG) {
            frequency /= factors[i];
        }
        rope->inverse_frequency[i] = (float)frequency;
    }
    if (p->kind == MODEL_ROPE_YARN)
        rope->attention = (float)yarn_attention(p);
    if (p->kind == MODEL_ROPE_LONG)
        rope->attention = (float)long_attention(p, config->context_max);
}

int rope_read(const struct fields *top, struct model_config *config)
{
    struct parameters p;
    int rc = read_parameters(top, config, &p);
    if (rc)
        return rc;
    fill(&p, config, p.short_factors, &config->rope);
    if (p.kind == MODEL_ROPE_LONG) {
        fill(&p, config, p.long_factors, &config->rope_long);
        config->rope_original = (uint32_t)p.original;
    }
    /* Published with max_position_embeddings of the original: the extension is what yarn is for. */
    if (p.kind == MODEL_ROPE_YARN)
        config->context_max = (uint32_t)fmin(p.factor * p.original, MODEL_CONTEXT_MAX);
    return 0;
}

/* The parameters of one kind of layers; `ret` has nothing where there are none. */
static int find_kind(const struct fields *sets, const char *kind, struct fields *ret)
{
    const json *set = field_get(sets, kind);
    *ret = (struct fields){set, sets->file, kind, sets->error};
    return set && !json_is_object(set) ? field_refuse(sets, kind, set, "an object") : 0;
}

/* Both kinds as they are given: by rope_parameters, or in the older spelling. */
static int find_kinds(const struct fields *top, struct fields *full, struct fields *local)
{
    const json *given = field_get(top, "rope_parameters");
    struct fields sets = {given, top->file, "rope_parameters", top->error};
    if (!given) {
        *local = (struct fields){NULL, top->file, NULL, top->error};
        return find_dictionary(top, full);
    }
    if (field_get(top, "rope_scaling"))
        return field_refuse(top, "rope_scaling", field_get(top, "rope_scaling"),
                            "possible beside rope_parameters");
    if (!json_is_object(given) ||
        (!field_get(&sets, "full_attention") && !field_get(&sets, "sliding_attention")))
        return field_refuse(top, "rope_parameters", given,
                            "an object of full_attention and sliding_attention");
    int rc = find_kind(&sets, "full_attention", full);
    return rc ? rc : find_kind(&sets, "sliding_attention", local);
}

/* Of kinds whose frequencies are the same in sequences of any length. */
static int read_one(const struct fields *top, const struct fields *rope, const char *theta,
                    double otherwise, struct model_config *config, struct model_rope *ret)
{
    struct parameters p;
    int rc = read_set(top, rope, theta, otherwise, config, &p);
    if (rc)
        return rc;
    if (p.kind == MODEL_ROPE_LONG || p.kind == MODEL_ROPE_YARN)
        return error_set(top->error, ERR_BAD_MODEL,
                         "%s: %s: longrope and yarn are not supported for %s", top->file,
                         rope->parent, config->family->type);
    fill(&p, config, NULL, ret);
    return 0;
}

int rope_read_kinds(const struct fields *top, struct model_config *config)
{
    struct fields full, local;
    int rc = find_kinds(top, &full, &local);
    if (rc == 0)
        rc = read_one(top, &full, "rope_theta", 1e6, config, &config->rope);
    if (rc == 0)
        rc = read_one(top, &local, "rope_local_base_freq", 1e4, config, &config->rope_local);
    return rc;
}

bool rope_choose(struct model_config *config, uint32_t context_max)
{
    uint32_t context = config->context_max;
    if (context_max && context_max < context)
        context = context_max;
    bool is_long = config->rope_original && context > config->rope_original;
    if (is_long)
        config->rope = config->rope_long;
    return is_long;
}
