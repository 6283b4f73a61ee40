"""Synonyms: groups of words that people exchange for one another (get, fetch, show; mail, email).

One group a line, single words, in any inflection: they are stemmed when read. Written from general knowledge: a group
belongs here if a thesaurus would have it. `topics` adds words that only belong to the same matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from .text import stem
from .topics import TOPICS

__all__ = ["SYNONYMS", "relatives"]

_TOPIC_WEIGHT = 0.5
"""A word of the same topic counts half as much as a word of the same meaning."""

SYNONYMS = """
get fetch retrieve read list show view obtain load query lookup return display
find search lookup query locate discover explore seek browse
create add make new generate build insert write
generate produce compose craft
delete remove erase drop destroy clear discard uninstall purge trash
update edit modify change set alter patch adjust revise amend rename
send post publish submit deliver share
start run launch begin execute trigger invoke initiate open boot
stop end kill terminate halt cancel close abort quit finish exit shutdown
cancel abort revoke void
check verify validate confirm test inspect examine ensure
compare comparison difference diff versus contrast
convert transform translate change turn exchange conversion
calculate compute count estimate determine calculator calculation
analyze analyse analysis examine evaluate assess study insight insights
summarize summary digest overview abstract brief tldr condense
download save fetch export
upload import attach
export download dump save
book reserve booking reservation schedule appointment
buy purchase order shop acquire checkout
sell sale vend
pay payment transfer remit checkout
join connect attach link combine
merge combine concatenate unite
split divide separate partition cut chunk
copy duplicate clone replicate
move transfer relocate shift drag
pause wait sleep delay hold
resume continue unpause
repeat loop iterate
reverse invert backwards flip
sort order rank arrange
rank ranking rankings leaderboard top chart standings
filter narrow select
choose select pick decide option
recommend suggest recommendation suggestion advise propose
improve optimize enhance boost refine polish optimise
fix repair resolve debug troubleshoot solve correct
monitor watch track observe follow
track trace follow tracking
schedule plan calendar timetable agenda
plan planner planning itinerary
remind reminder alert notify notification
notify alert notification inform announce
register signup enroll subscribe enrol
login signin authenticate logon authentication
logout signout logoff
password passcode credential credentials
encrypt cipher encode encryption
decrypt decipher decode decryption
hash digest checksum
random randomly shuffle dice
navigate goto visit browse go
click press tap push
type enter fill input
screenshot capture snapshot screengrab
record capture log
scan scanner ocr
draw sketch paint plot illustrate render
plot chart graph diagram visualize visualization histogram
edit modify rewrite
rewrite paraphrase rephrase reword polish
proofread grammar spelling correct spellcheck
translate translation language localize interpreter translator
speak talk say speech pronounce voice tts
transcribe transcript transcription caption captions subtitle subtitles lyrics
listen hear play audio
call phone dial telephone ring
message text sms chat dm
chat conversation talk dialogue messaging
reply respond answer
ask question query inquire
comment remark feedback reply
review rating feedback testimonial reviews
rate score rating grade
vote poll survey ballot election
assign allocate delegate
approve accept allow grant
reject deny decline refuse
enable activate on
disable deactivate off
lock block ban
unlock unblock
hide conceal mask
archive backup store
backup archive snapshot restore
restore recover undelete undo
undo revert rollback
deploy release ship rollout publish
install setup add
configure setup settings configuration config preferences
measure gauge meter measurement
predict forecast projection prediction estimate outlook
simulate simulation model
classify categorize label tag categorise
tag label hashtag keyword
detect identify recognize recognise spot
extract parse scrape pull
scrape crawl spider extract
parse extract read
join enter
leave exit quit
invite invitation
hire recruit recruiter staffing hiring
learn study teach educate tutor
teach lesson tutor instruct
cook prepare bake
eat dine meal
travel trip journey tour voyage vacation holiday
drive car vehicle
walk hike walking hiking
mail email inbox gmail mailbox emails
picture image photo photograph pic illustration
logo icon emblem brand
video movie clip film footage
movie film cinema
song music track tune
singer artist musician band
playlist mix album
audio sound recording podcast
game gaming play
slides slide presentation powerpoint ppt pptx deck
document doc docx word file paper
spreadsheet excel sheet xlsx workbook csv
pdf document
folder directory dir
file document
path directory location
repository repo codebase project
commit revision changeset
branch fork
issue bug ticket defect problem
ticket issue case
task todo item job assignment
note notes memo jot memorandum
article post blog story
news headline headlines article
website site webpage web page url domain homepage
page webpage
url link address hyperlink
link url hyperlink
internet web online
browser chrome firefox webpage
tab page window
app application software program apps
code source program script programming snippet
function method procedure
library package module dependency
package parcel shipment
database db sql table
table dataset spreadsheet
row record entry
column field attribute
field attribute property
relation relationship edge link association
node vertex entity
entity object node
graph network
memory remember recall knowledge
server host machine instance
container docker pod
cluster kubernetes k8s
cloud aws azure gcp
log logs journal history
history past historical record previous archive
user account profile member person customer
customer client buyer shopper
employee staff worker personnel
person people human individual
team group squad
friend contact buddy
contact contacts phonebook
company business firm corporation enterprise organization
organization organisation company institution
shop store retailer market outlet
price cost quote pricing fee rate
cheap discount affordable bargain deal
discount coupon promo deal voucher offer
budget spending expense
expense expenditure spending cost
money cash currency fund
currency forex exchange fx
stock share equity ticker
crypto cryptocurrency bitcoin coin token btc ethereum eth
invoice bill receipt
tax taxes vat
loan mortgage credit lending
salary wage pay income earnings compensation
job career employment position vacancy occupation work
resume cv
house home property housing
apartment flat condo studio
rent lease rental
hotel accommodation lodging hostel motel inn stay
restaurant dining cafe eatery diner bistro
food meal dish cuisine
recipe recipes dish cooking
drink beverage cocktail
flight plane airline airplane
airport terminal
train railway rail
bus coach
subway metro underground
taxi cab rideshare
car vehicle automobile auto
bike bicycle cycling
route directions path navigation
map maps navigation atlas
location place position address coordinates geolocation
geocode coordinates latitude longitude geocoding
place location venue spot poi
near nearby around closest nearest
distance far proximity
city town municipality
country nation
weather forecast temperature climate rain
time clock hour
date day calendar
timezone time
today current now present
latest recent newest current
event happening occasion meetup
meeting conference call appointment
holiday vacation festival
birthday anniversary
gift present
doctor physician medical
medicine drug medication pharmaceutical
disease illness condition disorder
symptom sign
exercise workout fitness training
diet nutrition calorie calories
sport sports athletics
football soccer
match game fixture
player athlete
school university college academy
course class lesson lecture tutorial training
student pupil learner
teacher instructor professor tutor
book novel ebook
author writer
paper publication article study
research study investigate papers scholarly academic
science scientific
math mathematics arithmetic
sum add addition total plus
subtract minus difference
multiply product times
divide quotient
average mean
maximum max highest largest peak
minimum min lowest smallest
quantity amount number count
size dimension
big large
small little tiny
fast quick rapid speed
word term vocabulary
definition meaning dictionary define
synonym thesaurus
quote quotation saying
joke humor funny
story tale narrative
poem poetry verse
name title
title heading headline
text string content
content contents text body
color colour
font typeface
shape polygon
layer level
device gadget hardware
phone mobile smartphone
computer pc laptop
light lamp bulb
temperature heat thermostat
battery power
energy power electricity
domain dns hostname
ip address
network internet
security vulnerability threat
permission access role privilege
token key credential
error exception failure fault
status state condition health
list listing catalog
category type kind genre class
group collection set
metric metrics statistic statistics stats kpi
report analytics dashboard
statistics stats figures
info information details detail data
information info details
detail details specifics
example sample
template boilerplate
law legal legislation statute
contract agreement
court case judicial
lawyer attorney
government federal political
president leader
politics political
population demographic census
war conflict
crime offense
police emergency
insurance policy coverage
charity donate donation nonprofit fundraising
pet animal dog cat
plant flower garden
tree forest
fashion clothes clothing outfit apparel wear
beauty cosmetics makeup skincare
horoscope astrology zodiac
tarot fortune divination
lottery jackpot
puzzle riddle crossword sudoku
chess board
dream sleep
star planet astronomy
space astronomy nasa
earthquake seismic
ocean sea marine
river water
mountain peak
photo picture
camera webcam
wallpaper background
avatar profile
emoji sticker
meme gif
qr barcode
"""


@cache
def relatives() -> Mapping[str, tuple[tuple[str, float], ...]]:
    """Return, for a stem, those that stand beside it in a group, with their weights in (0, 1]; built at first use."""
    found: dict[str, dict[str, float]] = {}
    for groups, weight in ((SYNONYMS, 1.0), (TOPICS, _TOPIC_WEIGHT)):
        for line in groups.strip().splitlines():
            members = list(dict.fromkeys(map(stem, line.split())))
            for one in members:
                row = found.setdefault(one, {})
                for other in members:
                    if other != one and row.get(other, 0.0) < weight:
                        row[other] = weight
    return MappingProxyType({one: tuple(row.items()) for one, row in found.items()})
