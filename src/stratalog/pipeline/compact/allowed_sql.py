"""What the SQL of a stored policy may use: functions by name, and nodes of Spark's plans by class.

Whoever may set a policy chooses which records of a log live, and nothing else. So what is allowed
computes a value from the values of a record. What is left out calls Java or other programs, reads
files or tables, tells about the session, its user or its machine, fails on purpose, or gives
another answer each time. What is new in a later Spark is not allowed until it is added here.
"""

FUNCTIONS = frozenset(
    """
    between coalesce equal_null greatest if ifnull isnan isnotnull isnull least nanvl nullif
    nullifzero nvl nvl2 when zeroifnull not typeof

    bigint binary boolean cast date decimal double float int smallint string timestamp tinyint
    to_binary to_char to_number to_varchar try_to_binary try_to_number

    + - * / % ! ~ & | ^ || < <= > >= = == <=> and or in << >> >>>
    abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv
    cos cosh cot csc degrees div e exp expm1 factorial floor getbit hypot ln log log10 log1p log2
    mod negative pi pmod positive pow power radians rint round sec shiftleft shiftright
    shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply
    try_subtract width_bucket

    ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains
    decode elt encode endswith find_in_set format_number format_string hex ilike initcap instr
    is_valid_utf8 lcase left len length levenshtein like locate lower lpad ltrim luhn_check
    make_valid_utf8 mask octet_length overlay parse_url position printf quote regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat
    replace reverse right rlike rpad rtrim soundex space split split_part startswith substr
    substring substring_index translate trim try_parse_url try_url_decode ucase unbase64 unhex
    upper url_decode url_encode

    crc32 hash md5 sha sha1 sha2 xxhash64

    from_csv from_json get_json_object is_variant_null json_array_length json_object_keys
    json_tuple parse_json schema_of_json to_csv to_json to_variant_object try_parse_json
    try_variant_get variant_get

    add_months convert_timezone curdate current_date current_timestamp current_timezone date_add
    date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff
    datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp
    hour last_day localtimestamp make_date make_dt_interval make_interval make_timestamp
    make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname months_between
    next_day now quarter second timestamp_micros timestamp_millis timestamp_seconds to_date
    to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
    try_make_interval try_make_timestamp try_to_date try_to_timestamp unix_date unix_micros
    unix_millis unix_seconds unix_timestamp weekday weekofyear year

    aggregate array array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
    cardinality element_at exists filter flatten forall get map map_concat map_contains_key
    map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
    named_struct reduce sequence size slice sort_array str_to_map struct transform transform_keys
    transform_values try_element_at zip_with
    explode explode_outer inline inline_outer posexplode posexplode_outer stack

    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor
    bool_and bool_or collect_list collect_set corr count count_if covar_pop covar_samp every first
    first_value kurtosis last last_value max max_by mean median min min_by mode percentile
    percentile_approx skewness some std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop
    var_samp variance
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    """.split()
)
"""As Spark calls them. The class behind each is allowed too, as Spark itself has it."""

PLANS = frozenset(
    """
    Aggregate CTERelationDef CTERelationRef Distinct Except Filter Generate GlobalLimit Intersect
    Join LocalLimit LocalRelation Offset OneRowRelation Project Sort SubqueryAlias Union
    UnresolvedHaving UnresolvedInlineTable UnresolvedSubqueryColumnAliases UnresolvedWith Window
    WithCTE ResolvedInlineTable
    """.split()
)
"""What a query may be made of, before and after Spark has looked up its names."""

EXPRESSIONS = frozenset(
    """
    Alias AttributeReference Literal MultiAlias OuterReference NamePlaceholder
    UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedNamedLambdaVariable
    UnresolvedOrdinal UnresolvedStar

    Between CaseWhen Cast CheckOverflow Exists GetArrayItem GetArrayStructFields GetMapValue
    GetStructField InSubquery LambdaFunction LikeAll LikeAny ListQuery NamedLambdaVariable
    NotLikeAll NotLikeAny ScalarSubquery SemiStructuredExtract

    AggregateExpression CurrentRow SortOrder SpecifiedWindowFrame UnboundedFollowing
    UnboundedPreceding UnspecifiedFrame WindowExpression WindowSpecDefinition

    CommonExpressionDef CommonExpressionRef Invoke KnownNotNull KnownNullable StaticInvoke TryEval
    With
    """.split()
)
"""What is no function: names, literals, operators, and what Spark puts in the place of others."""

BEHIND_FUNCTIONS = frozenset(
    """
    NullIfResult ToCharacter Ceil Floor RoundCeil RoundFloor
    Contains EndsWith StartsWith StringDecode StringInstr StringInstrWithOccurrence Mask
    BinaryPad StringLPad StringRPad
    ParseJson VariantGet

    CurrentDate CurrentTimestamp LocalTimestamp Now
    DateAddInterval DateAddYMInterval DatetimeSub SubtractDates SubtractTimestamps TimeAdd
    TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff
    DivideDTInterval DivideInterval DivideYMInterval
    MultiplyDTInterval MultiplyInterval MultiplyYMInterval
    ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
    ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
    ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalMonths
    ExtractIntervalSeconds ExtractIntervalYears
    Hour Minute Second SecondWithFraction
    MakeTimestamp MakeTimestampLTZ MakeTimestampNTZ TryMakeTimestamp

    MaxBy MinBy Mode
    Explode Inline PosExplode
    """.split()
)
"""What allowed functions and operators turn into that Spark does not list under their names."""
