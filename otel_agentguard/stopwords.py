"""Words that carry no subject: function words and pleasantries of English and German."""

from __future__ import annotations

_ENGLISH = """
a about above actually after again against all almost already also although always am among an and another any anyone
anything are aren't around as ask at away back be became because been before being below between both but by can can't
cannot come could couldn't did didn't do does doesn't doing don't done down during each either else enough even ever
every everything few first for from further get gets getting give given go goes going gone good got great had hadn't
has hasn't have haven't having he he's hello help her here here's hers herself hi him himself his how however i i'd
i'll i'm i've if in indeed into is isn't it it's its itself just keep know last least less let let's like look made
make makes many may maybe me might mine more most much must my myself need needs never next no nor not nothing now of
off ok okay on once one only or other others our ours ourselves out over own per perhaps please put quite rather
really right said same say says see seem seems several shall she should shouldn't since so some someone something soon
still such sure take than thank thanks that that's the their theirs them themselves then there there's therefore these
they they're this those though through thus to together too toward towards try under until up upon us use very want
was wasn't way we we'd we'll we're we've well were weren't what what's when where whether which while who whom whose
why will with within without won't would wouldn't yes yet you you'd you'll you're you've your yours yourself
"""

_GERMAN = """
ab aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei beim
bereits besser bin bis bist bitte da dabei dadurch dafür dagegen daher damit danach dann daran darauf darüber darum
das dass davon davor dazu dein deine deinem deinen deiner dem den denn dennoch der deren des dessen deshalb dich die
dies diese dieselbe diesem diesen dieser dieses dir doch dort du durch eben ebenfalls ein eine einem einen einer eines
einfach einige einigen einiger einiges einmal er erst es etwa etwas euch euer eure für ganz gar gegen gemacht genau
genug gerade gern gibt gleich gut hab habe haben hallo hast hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre
ihrem ihren ihrer im immer in indem ins ist ja jede jedem jeden jeder jedes jedoch jemand jetzt kann kannst kein keine
keinem keinen keiner können könnte lassen leider machen mal man manche mehr mein meine meinem meinen meiner mich mir
mit muss müssen musst nach nachdem natürlich neben nein nicht nichts nie noch nun nur ob oben oder ohne recht schon
sehr sei sein seine seinem seinen seiner seit selbst sich sicher sie sind so sobald solche solchem solchen solcher
soll sollen sollte sollten sondern sonst soweit sowie trotzdem über um und uns unser unsere unserem unseren unserer
unten unter viel viele vielen vielleicht vom von vor war waren warst warum was weg weil weiter welche welchem welchen
welcher welches wenig wenn wer werde werden wie wieder will wir wird wirst wo wohl wollen worden wurde wurden während
zu zum zur zwar zwischen
"""

STOP_WORDS = frozenset(_ENGLISH.split()) | frozenset(_GERMAN.split())
