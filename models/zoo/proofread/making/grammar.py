"""Cheap rules about English: what surely is a mistake in a text, each rule by its name.

A rule may find fault with a right sentence (it is only thrown away), and should not miss a wrong one.
"""

from __future__ import annotations

import re

# A name, and under it, indented, a regular expression over as many lines as it takes.
_PARTS = r"""
PRONOUN
    (?:I|you|he|she|it|we|they|this|that|there)
CLAUSE
    (?:(?:I|you|he|she|it|we|they|there|that)(?:'(?:m|s|re|ve|ll|d))?)
SUBORDINATE
    (?:If|When|Whenever|While|After|Before|Because|Although|Though|Since|As|Once|Until|Unless|Even|Whoever|
    Whatever|Wherever|Instead|By|At|In|On|For|From|With|Without|During|To|Sorry|Yes|No|Hi|Hey|Hello|Well|Oh|
    Okay|Sure|Thanks|Now|Then|Today|Tomorrow|Tonight|Yesterday|Last|Next|Every|Usually|Sometimes|Maybe|
    First|Finally|Later|Unfortunately|However|Of|Good|Mom|Dad|Anna|Tom|Sarah|Just|Only|Like|So|Still|
    Instead)
BARE
    (?:be|go|have|do|get|make|take|come|see|say|want|need|know|find|give|like|work|look|eat|keep|feel)
PAST
    (?:went|gone|came|saw|took|gave|knew|ate|made|got|was|were|had|did|said|found|felt|kept|told|thought)
"""
# The same; {NAME} stands for one of the parts above.
_RULES = r"""
its for it's
    \b[Ii]ts (?:a|an|the|not|been|so|very|too|just|going|hard|easy|time|always|never|really|also|okay|great|
    good|nice|important|my|your|our|like|all|only|still|in|on|at|for|because)\b
it's for its
    \b[Ii]t's (?:own|name|way|color|size|place|head|tail|shape|owner|mother|body|feet|legs|eyes|wings|mouth|
    life|home|history|beauty|surface|value|price|purpose|roots|leaves|children)\b
your for you're
    \b[Yy]our (?:a|an|the|not|so|very|too|going|welcome|right|wrong|looking|always|never|really|sure|doing|
    getting|coming|having|being|my|his|her|in|on|at|just|ready|still|invited)\b
you're for your
    \b[Yy]ou're (?:own|name|car|house|home|mother|father|mom|dad|friend|friends|family|job|phone|life|hair|
    children|kids|order|way|room|place|dog|cat|help|time|favorite|first|last)\b
their for they're
    \b[Tt]heir (?:a|an|the|not|so|very|too|going|is|are|was|were|always|really|looking|doing|getting|in|on|
    at|just|still|all|made)\b
they're for their
    \b[Tt]hey're (?:own|name|names|house|home|parents|children|kids|friends|family|way|dog|mother|father|
    car|food|life|lives|jobs|work|first|favorite|place|eyes|heads)\b
there for their
    \b(?:with|for|of|in|on|to|at|from|about) there (?:own|parents|friends|family|kids|house|way)\b
to for too
    \bto (?:much|many|late|early|bad|expensive|loud|small|big|tired|cold|far)\b(?! as)
too for to
    \btoo (?:be|go|have|do|get|make|take|come|see|the|a|me|you|him|her|them|us|my|your)\b
then for than
    \b(?:more|less|better|worse|bigger|smaller|older|rather|other|easier|faster|higher|lower) then\b
of for have
    \b(?:could|would|should|must|might) of\b
loose for lose
    \b(?:to|will|'ll|don't|can't|would|not) loose\b
who's for whose
    \b[Ww]ho's (?:name|car|house|idea|job|turn|dog|phone|birthday|mother|father)\b
a before a vowel
    \b[Aa] (?!one\b|once\b|u[nst][aeiou]|us|eu|uk)[aeiou]
an before a consonant
    \b[Aa]n (?!hour|honest|hono|heir)[b-df-hj-np-tv-z]|\b[Aa]n (?:uni(?!n|m)|use|one)
singular verb
    \b(?:they|we|you|They|We|You|these|those|These|Those) (?:was|is|has|does|doesn't|isn't|wasn't|hasn't)\b
plural verb
    \b(?:[Hh]e|[Ss]he|[Ii]t|[Tt]his|[Tt]hat) (?:have|are|were|do|don't|haven't|aren't)\b
first person
    \bI (?:is|are|has|does|were|isn't|aren't|doesn't|hasn't)\b
there is with a plural
    \b[Tt]here(?:'s| is| was) (?:many|several|two|three|four|five|six|some \w+s|lots|a lot of \w+s|so many|
    no \w+[^s]s|people|children)\b
there are with a singular
    \b[Tt]here (?:are|were) (?:a(?! (?:lot|few|number|couple|handful|dozen|bunch|variety|hundred|thousand|
    million|great|good|ton|wide|range))|an|one|no one|much|something|nothing)\b
plural demonstrative
    \b(?:[Tt]hese|[Tt]hose) (?:is|was|has|a|an|kind|thing|one)\b
singular demonstrative
    \b(?:[Tt]his|[Tt]hat) (?:are|were|things|people|ones|days|kinds|children|books)\b
many or much
    \b[Mm]uch (?:people|things|friends|books|days|times|children|years|questions|places)\b|
    \b[Mm]any (?:water|money|time|work|food|information|help|advice|homework|music|fun)\b
amount without plural
    \b(?:two|three|four|five|six|seven|eight|nine|ten|many|several|few|both) (?:day|week|month|year|hour|
    minute|time|person|friend|book|dog|cat|car|kid|child|thing|dollar|mile|room|house|brother|sister|way|
    place|bag|cup|piece|type|kind)\b(?!-)
uncountable plural
    \b(?:informations|advices|homeworks|furnitures|equipments|childs|mans|womans|peoples|foots|tooths|
    mouses|sheeps|fishes|moneys|staffs|musics|luggages|knowledges)\b
form after to
    \b(?:want|wants|wanted|need|needs|needed|going|have|has|had|like|love|try|able|used) to {PAST}\b
form after a modal
    \b(?:can|could|will|would|should|must|might|may|can't|couldn't|won't|wouldn't|shouldn't|didn't|doesn't|
    don't|I'll|you'll|we'll|they'll|he'll|she'll|it'll) (?:{PAST}|been|goes|has|does|makes|takes|comes|gets|
    wants|needs|is|are|am|going|to)\b
form after did
    \b[Dd]id (?:I|you|he|she|it|we|they) (?:went|came|saw|took|got|had|was|were|said|found|has|goes)\b
question form
    \b[Dd]oes (?:you|we|they|I|your \w+s|people) |\b[Dd]o (?:he|she|it|this|that) |\b[Dd]oes (?:he|she|
    it) (?:has|goes|does|is|was|makes|{PAST})\b
third person
    (?<!did )(?<!does )(?<!let )(?<!make )(?<!help )(?<!see )(?<!would )(?<!will )(?<!can )(?<!should )
    (?<!could )(?<!has )(?<!Did )(?<!Does )(?<!Will )(?<!Can )(?<!Could )(?<!made )(?<!Would )(?<!Should )
    (?<!saw )(?<!Should )(?<!Let )(?<!May )(?<!may )\b(?:[Hh]e|[Ss]he|[Ii]t) {BARE}\b
wrong participle
    \b(?:I've|we've|they've|you've|have|has|had|hasn't|haven't|hadn't) (?:went|came back to|saw|took|gave|
    knew|ate|did|wrote|drove|broke|chose|began|forgot to be|spoke|go|do|make|take|see|give)\b
be with a bare verb
    \b(?:I'm|you're|he's|she's|it's|we're|they're|am|are|is|was|were) (?:go|have|do|get|make|take|see|say|
    want|need|know|find|give|eat|keep|feel|went|has|had|did|wants|needs|goes)\b
double negative
    \b(?:don't|doesn't|didn't|can't|couldn't|won't|never|haven't|isn't) (?:\w+ )?(?:nothing|nobody|no one|
    never|none)\b
double comparative
    \bmore (?:better|easier|bigger|faster|older|cheaper|nicer|worse|happier|stronger)\b|\bmost best\b
better with as
    \b(?:better|worse|more|less|bigger|older|rather) as\b|\bas \w+ than\b
article missing
    \b(?:is|was|have|has|had|it's|he's|she's|I'm|buy|need|want|bought) (?:good|nice|great|big|small|new|old|
    beautiful|little|best) (?:place|idea|day|time|person|book|dog|cat|car|house|man|woman|friend|job|way|
    story|movie)\b
two articles
    \b(?:a|an|the|my|your|his|her|our|their|its) (?:a|an|the|my|your|our|their|its|is|are|was|were|of|to|
    and|or|but)\b
two prepositions
    \b(?:of|to|at|for|with|from|in the|on the|to the|of the) (?:of|is|are|was|were|at|and|but|or|to)\b
a with a plural
    \b(?:[Aa]|[Aa]n|[Ee]very|[Ee]ach|[Aa]nother|one) (?:people|things|children|men|women|days|years|friends|
    books|kids|ones|times|places|flowers|shoes|parents|dogs|cats|trees|birds)\b
object pronoun
    (?:^|[.!?] |, )(?:Me|Him|Her|Us|Them|me|him|them|us) (?:and|is|are|was|were|am|has|have|will|can)\b
subject as object
    \b(?:with|for|to|from|about|at|told|tell|asked|gave|give|between) (?:I|he|she|we|they)\b(?! (?:\w+ed|
    \w+|'))
reflexive
    \b(?:hisself|theirselves|theirself|ourself|themself|themselfs|itselfs|yourselfs)\b
which is
    \b(?:who|which|that) (?:is|are|was|were) (?:is|are|was|were|has|have)\b|\b(?:is|are|was|were) (?:is|are|
    was|were|am)\b
comma splice
    ^(?!{SUBORDINATE}\b)(?![^,.!?]*\b(?:if|when|because|although|while|since|until|once|before|
    after)\b[^,]*,)[^,.!?]+, (?:{CLAUSE}|please|let's|don't|thank|here's|what|my|the|your|their|our|his|
    her)\b
comma splice later
    [.!?] (?!{SUBORDINATE}\b)[^,.!?]+, {CLAUSE}\b
comma splice after and
    , (?:and|but|so|or) [^,.!?]+, {CLAUSE}\b
comma missing before but
    \w but {PRONOUN}\b(?:'| (?:am|is|are|was|were|will|can|do|don't|have|had|would|could))
comma missing at the start
    (?:^|[.!?] )(?:Yes|No|Unfortunately|However|Hi|Hello|Hey|Okay|Well|Oh|Finally) (?!one|matter|more|
    longer|wonder|way|problem|worries|doubt|there\b|done|everyone|all|idea|need|and)[a-zI]
comma missing after a clause
    ^(?:If|When|While|Although|Because|Since|As soon as|Once|After|Before) (?:I|you|he|she|it|we|
    they)\b[^,]*[.!?]$
question without a mark
    (?:^|[.!] )(?:(?:What|Where|When|Why|How|Who) (?:is|are|do|does|did|can|could|will|would|should|was|
    were|have|has)|What's|Where's|Who's|How's|(?:Do|Does|Did|Is|Are|Was|Were|Can|Could|Would|Will|Should|
    Has|Isn't|Aren't|Didn't|Shouldn't|Wouldn't) (?:{PRONOUN}|the|your|my|any|we|our|his|her))\b[^?]*[.!]
mark without a question
    (?:^|[.!?] )(?:I'm|We're|They're|You're|He's|She's|It's|My|The|Our|Their|There's|I|We|Please|Thank you|
    Thanks|They|He|She|It|Let's|If you|Here's)\b(?![^?]*, (?:right|okay|is|isn't|are|aren't|do|don't|did|
    didn't|can|could|will|would|what|how|why|who|where|when|should))[^?.!]*\?
"""


def _read(text: str) -> dict[str, str]:
    blocks = re.split(r"\n(?! )", text.strip("\n"))
    return {name: "".join(map(str.strip, lines)) for name, *lines in (block.split("\n") for block in blocks)}


def _compiled(pattern: str) -> re.Pattern[str]:
    for name, part in _read(_PARTS).items():
        pattern = pattern.replace("{" + name + "}", part)
    return re.compile(pattern)


RULES = {name: _compiled(pattern) for name, pattern in _read(_RULES).items()}


def broken_rule(text: str) -> str | None:
    """The first rule that a text breaks."""
    return next((name for name, pattern in RULES.items() if pattern.search(text)), None)
