"""An example of each function that the SQL of a policy may use."""

EXPRESSIONS = """
    offset between 1 and 2
    coalesce(body, body)
    equal_null(offset, 1)
    greatest(offset, 1), least(offset, 1)
    if(offset > 1, 1, 2)
    ifnull(body, body), nvl(body, body), nvl2(body, 1, 2), nullif(offset, 1)
    nullifzero(offset), zeroifnull(offset)
    isnan(1.0d), nanvl(1.0d, 2.0d)
    isnull(body), isnotnull(body)
    case when offset = 1 then 1 else 2 end, case offset when 1 then 2 end
    not(offset = 1), ! (offset = 1)
    typeof(body)

    bigint(1), binary('a'), boolean(1), cast(offset as string), date('2020-01-01'), decimal(1)
    double(1), float(1), int(1), smallint(1), string(body), timestamp('2020-01-01'), tinyint(1)
    try_cast(string(body) as int), offset :: string
    to_binary('61', 'hex'), try_to_binary('61', 'hex')
    to_char(1, '9'), to_varchar(1, '9'), to_number('1', '9'), try_to_number('1', '9')

    offset + 1, offset - 1, offset * 2, offset / 2, offset % 2, offset div 2, - offset, + offset
    ~ offset, offset & 1, offset | 1, offset ^ 1, offset << 1, offset >> 1, offset >>> 1
    offset < 1, offset <= 1, offset > 1, offset >= 1, offset = 1, offset == 1, offset <> 1
    offset != 1, offset <=> 1, offset = 1 and true, offset = 1 or true, offset in (1, 2)
    offset is null, offset is not null, offset is distinct from 1, (offset = 1) is true
    abs(1), acos(1), acosh(1), asin(1), asinh(1), atan(1), atan2(1, 1), atanh(0)
    bin(1), bit_count(1), bit_get(1, 0), getbit(1, 0), bround(1.5, 0), cbrt(1), ceil(1.5)
    ceiling(1.5), conv('1', 10, 2), cos(1), cosh(1), cot(1), csc(1), degrees(1), e(), exp(1)
    expm1(1), factorial(3), floor(1.5), hypot(1, 1), ln(1), log(2, 4), log10(1), log1p(1), log2(1)
    mod(3, 2), negative(1), pi(), pmod(3, 2), positive(1), pow(2, 2), power(2, 2), radians(1)
    rint(1.5), round(1.55, 1), sec(1), shiftleft(1, 1), shiftright(1, 1), shiftrightunsigned(1, 1)
    sign(1), signum(1), sin(1), sinh(1), sqrt(1), tan(1), tanh(1), width_bucket(5, 0, 10, 5)
    try_add(1, 1), try_divide(1, 1), try_mod(1, 1), try_multiply(1, 1), try_subtract(1, 1)

    ascii('a'), base64(body), bit_length('a'), btrim(' a '), char(65), chr(65)
    char_length('a'), character_length('a'), length('a'), len('a'), octet_length('a')
    'a' || 'b', concat('a', 'b'), concat_ws(',', 'a', 'b'), contains('a', 'b')
    decode(body, 'UTF-8'), decode(1, 1, 'a', 'b'), encode('a', 'UTF-8'), elt(1, 'a', 'b')
    startswith('a', 'a'), endswith('a', 'a'), find_in_set('a', 'a,b'), format_number(1, 1)
    format_string('%s', 'a'), printf('%s', 'a'), hex(body), unhex('61'), unbase64('YQ==')
    string(body) like 'a%', string(body) ilike 'A%', string(body) rlike 'a', string(body) regexp 'a'
    like('a', 'b'), ilike('a', 'b'), rlike('a', 'b'), regexp('a', 'b'), regexp_like('a', 'b')
    string(body) like any ('a', 'b'), string(body) like all ('a', 'b')
    string(body) not like any ('a', 'b'), string(body) not like all ('a', 'b')
    initcap('a'), instr('a', 'a'), locate('a', 'a'), position('a', 'a'), position('a' in 'a')
    lcase('A'), lower('A'), ucase('a'), upper('a'), left('ab', 1), right('ab', 1)
    levenshtein('a', 'b'), soundex('a'), luhn_check('0'), mask('a'), quote('a')
    lpad('a', 3, ' '), rpad('a', 3, ' '), lpad(body, 3), rpad(body, 3), space(1), repeat('a', 2)
    ltrim(' a'), rtrim('a '), trim(' a '), trim(both ' ' from 'a'), trim(leading 'x' from 'a')
    overlay('abc' placing 'x' from 2), overlay('abc', 'x', 2), reverse('ab'), replace('a', 'a', 'b')
    parse_url('http://a/b', 'HOST'), try_parse_url('http://a/b', 'HOST')
    regexp_count('a', 'a'), regexp_extract('a', '(a)', 1), regexp_extract_all('a', '(a)', 1)
    regexp_instr('a', 'a'), regexp_replace('a', 'a', 'b'), regexp_substr('a', 'a')
    split('a,b', ','), split_part('a,b', ',', 1), substr('abc', 2), substr(body, 1, 2)
    substring('abc', 2), substring('abc' from 2 for 1), substring_index('a.b', '.', 1)
    translate('a', 'a', 'b'), url_decode('a'), try_url_decode('a'), url_encode('a')
    is_valid_utf8('a'), make_valid_utf8('a')

    crc32('a'), hash('a'), md5('a'), sha('a'), sha1('a'), sha2('a', 256), xxhash64('a')

    from_json(string(body), 'key string').key, get_json_object(string(body), '$.key')
    json_array_length('[1]'), json_object_keys('{}'), to_json(struct(offset))
    schema_of_json('{}'), from_csv('1', 'a int').a, to_csv(struct(offset))
    try_variant_get(try_parse_json(string(body)), '$.key', 'string')
    variant_get(parse_json('{"key": 1}'), '$.key', 'int'), is_variant_null(parse_json('null'))
    variant_get(to_variant_object(named_struct('key', 1)), '$.key', 'int')
    parse_json('{"key": 1}'):key::int

    add_months(date '2020-01-01', 1), convert_timezone('UTC', 'UTC', timestamp_ntz '2020-01-01')
    curdate(), current_date(), current_date, current_timestamp(), current_timestamp, now()
    current_timezone(), localtimestamp()
    date_add(date '2020-01-01', 1), dateadd(date '2020-01-01', 1), dateadd(day, 1, timestamp)
    date_sub(date '2020-01-01', 1), date_diff(date '2020-01-02', date '2020-01-01')
    datediff(date '2020-01-02', date '2020-01-01'), datediff(day, timestamp, timestamp)
    date '2020-01-01' + 1, date '2020-01-02' - date '2020-01-01', date '2020-01-02' - 1
    timestamp - interval 1 day, timestamp + interval 1 month, timestamp - timestamp
    timestamp + make_interval(0, 1), interval 1 day * 2, interval 2 months / 2
    date '2020-01-01' + interval 1 month, date '2020-01-01' - interval 1 day
    timestamp > current_timestamp() - interval 30 days
    date_format(timestamp, 'yyyy'), date_from_unix_date(1), date_part('year', timestamp)
    datepart('hour', timestamp), extract(minute from timestamp), date_trunc('day', timestamp)
    day(timestamp), dayname(timestamp), dayofmonth(timestamp), dayofweek(timestamp)
    dayofyear(timestamp), hour(timestamp), minute(timestamp), month(timestamp)
    monthname(timestamp), quarter(timestamp), second(timestamp), weekday(timestamp)
    weekofyear(timestamp), year(timestamp), trunc(timestamp, 'month'), last_day(timestamp)
    next_day(timestamp, 'MO'), months_between(timestamp, timestamp)
    from_unixtime(1), from_utc_timestamp(timestamp, 'UTC'), to_utc_timestamp(timestamp, 'UTC')
    make_date(2020, 1, 1), make_timestamp(2020, 1, 1, 1, 1, 1), make_dt_interval(1)
    make_interval(1), make_ym_interval(1), make_timestamp_ltz(2020, 1, 1, 1, 1, 1)
    make_timestamp_ntz(2020, 1, 1, 1, 1, 1), try_make_interval(1)
    try_make_timestamp(2020, 1, 1, 1, 1, 1)
    timestamp_micros(1), timestamp_millis(1), timestamp_seconds(1), to_date('2020-01-01')
    to_date('2020', 'yyyy'), to_timestamp('2020-01-01'), to_timestamp('2020', 'yyyy')
    to_timestamp_ltz('2020-01-01'), to_timestamp_ntz('2020-01-01'), to_unix_timestamp(timestamp)
    try_to_date('x'), try_to_timestamp('x'), unix_date(date '2020-01-01'), unix_micros(timestamp)
    unix_millis(timestamp), unix_seconds(timestamp), unix_timestamp(timestamp)
    timestampadd(day, 1, timestamp), timestampdiff(day, timestamp, timestamp)

    aggregate(array(1), 0, (a, x) -> a + x), reduce(array(1), 0, (a, x) -> a + x), array(1)[0]
    array_append(array(1), 1), array_compact(array(1)), array_contains(array(1), 1)
    array_distinct(array(1)), array_except(array(1), array(2)), array_insert(array(1), 1, 2)
    array_intersect(array(1), array(2)), array_join(array('a'), ','), array_max(array(1))
    array_min(array(1)), array_position(array(1), 1), array_prepend(array(1), 1)
    array_remove(array(1), 1), array_repeat(1, 2), array_size(array(1)), array_sort(array(1))
    array_sort(array(1), (a, b) -> a - b), array_union(array(1), array(2))
    arrays_overlap(array(1), array(2)), arrays_zip(array(1), array(2)), cardinality(array(1))
    element_at(array(1), 1), try_element_at(array(1), 1), get(array(1), 0), size(array(1))
    exists(array(1), x -> x = offset), filter(array(1), x -> x > 0), forall(array(1), x -> x > 0)
    flatten(array(array(1))), sequence(1, 3), slice(array(1), 1, 1), sort_array(array(1))
    transform(array(1), x -> x + 1), zip_with(array(1), array(2), (x, y) -> x + y)
    map('a', 1)['a'], map_concat(map('a', 1)), map_contains_key(map('a', 1), 'a')
    map_entries(map('a', 1)), map_filter(map('a', 1), (k, v) -> v > 0), map_keys(map('a', 1))
    map_from_arrays(array('a'), array(1)), map_from_entries(array(struct('a', 1)))
    map_values(map('a', 1)), map_zip_with(map('a', 1), map('a', 2), (k, x, y) -> x + y)
    transform_keys(map('a', 1), (k, v) -> upper(k)), transform_values(map('a', 1), (k, v) -> v)
    str_to_map('a:1'), named_struct('a', 1).a, struct(offset).offset, array(struct(offset)).offset
"""
"""Expressions over a record, with commas between those of a line."""

AGGREGATES = """
    any(offset = 1), some(offset = 1), every(offset = 1), bool_and(offset = 1), bool_or(offset = 1)
    any_value(offset), first(offset), first_value(offset), last(offset), last_value(offset)
    approx_count_distinct(offset), approx_percentile(offset, 0.5), percentile_approx(offset, 0.5)
    percentile(offset, 0.5), median(offset), mode(offset), mean(offset), avg(offset)
    try_avg(offset), try_sum(offset)
    array_agg(offset), collect_list(offset), collect_set(offset)
    bit_and(offset), bit_or(offset), bit_xor(offset)
    count(*), count(1), count(distinct offset), count_if(offset = 1)
    count(*) filter (where offset > 1)
    corr(offset, offset), covar_pop(offset, offset), covar_samp(offset, offset), kurtosis(offset)
    skewness(offset), std(offset), stddev(offset), stddev_pop(offset), stddev_samp(offset)
    var_pop(offset), var_samp(offset), variance(offset), sum(offset)
    max(offset), min(offset), max_by(offset, timestamp), min_by(offset, timestamp)
"""

WINDOWS = """
    cume_dist() over w, dense_rank() over w, lag(offset) over w, lead(offset) over w
    nth_value(offset, 1) over w, ntile(2) over w, percent_rank() over w, rank() over w
    row_number() over w
    max(offset) over (partition by body rows between 1 preceding and current row)
    sum(offset) over (order by offset range between unbounded preceding and unbounded following)
"""
"""Where ``w`` stands for a window."""

QUERIES = (
    "SELECT offset FROM log",
    "SELECT max(offset) FROM log GROUP BY get_json_object(string(body), '$.key')",
    "SELECT l.offset FROM LOG AS l WHERE l.offset > (SELECT max(offset) - 5 FROM log)",
    "SELECT offset FROM log WHERE EXISTS (SELECT 1 FROM log AS o WHERE o.offset = log.offset + 1)",
    "SELECT offset FROM log WHERE offset IN (SELECT max(offset) FROM log GROUP BY body)",
    "SELECT offset FROM log WHERE string(body) IN (SELECT * FROM VALUES ('a'), (lower('B')) AS t)",
    "WITH last AS (SELECT body, max(offset) AS o FROM log GROUP BY body) SELECT o FROM last",
    "WITH a AS (SELECT * FROM log), b AS (SELECT offset FROM a) SELECT b.offset FROM a, b LIMIT 1",
    "SELECT a.offset FROM log AS a JOIN log AS b USING (offset)",
    "SELECT a.offset FROM log a LEFT ANTI JOIN log b ON a.body = b.body AND a.offset < b.offset",
    "SELECT offset FROM log UNION SELECT offset FROM log EXCEPT SELECT 1 INTERSECT SELECT 2",
    "SELECT DISTINCT offset FROM log ORDER BY offset DESC NULLS LAST LIMIT 5 OFFSET 1",
    "SELECT max(offset) FROM log GROUP BY 1 = 1 HAVING count(*) > 1 ORDER BY 1",
    "SELECT offset FROM log LATERAL VIEW explode(array(1, 2)) t AS x WHERE x = 1",
    "SELECT offset FROM log LATERAL VIEW OUTER posexplode_outer(map('a', 1)) t AS p, k, v",
    "SELECT offset FROM log LATERAL VIEW json_tuple(string(body), 'a', 'b') t AS a, b",
    "SELECT o FROM (SELECT offset AS o, explode_outer(array(1)) AS x FROM log)",
    "SELECT o FROM (SELECT offset AS o, posexplode(array(1)) AS (p, x) FROM log)",
    "SELECT o FROM (SELECT offset AS o, inline(array(struct(1, 2))) AS (x, y) FROM log)",
    "SELECT o FROM (SELECT offset AS o, inline_outer(array(struct(1, 2))) AS (x, y) FROM log)",
    "SELECT o FROM (SELECT offset AS o, stack(1, 2, 3) AS (x, y) FROM log)",
    "SELECT CASE WHEN offset > 1 THEN offset END FROM log -- the newest",
)


def paragraphs(text: str) -> list[str]:
    """The expressions of a text above, those of a paragraph with commas between."""
    parts = text.strip().split("\n\n")
    return [", ".join(line.strip() for line in part.splitlines()) for part in parts]
